{{- define "kdi.location" -}}
{{ .release }}-{{ required "locations[].name: each location needs one, such as kdi-assets" .name | replace "_" "-" }}
{{- end }}

{{- define "kdi.labels" -}}
app.kubernetes.io/name: kdi
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "kdi.image" -}}
image: "{{ required "image.repository: build deploy/Dockerfile, push it, and name it here" .Values.image.repository }}:{{ .Values.image.tag }}"
{{- end }}

{{/* Of every pod: no root, no rights of its own in Kubernetes unless it says so. */}}
{{- define "kdi.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false
shareProcessNamespace: true # the first process of a container would ignore SIGTERM, and reap no children
securityContext: {runAsNonRoot: true, runAsUser: 990, runAsGroup: 990, fsGroup: 990, seccompProfile: {type: RuntimeDefault}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
{{- range . }}
  - name: {{ . }}
{{- end }}
{{- end }}
{{- end }}

{{/* Of every container of the image. Its only secret is the password of Dagster's database. */}}
{{- define "kdi.container" -}}
{{ include "kdi.image" . }}
securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
env:
  - {name: KDI_HOME, value: /var/lib/kdi}
  - {name: KDI_DEFS, value: {{ if .documents }}/var/lib/kdi/streams{{ else }}/etc/kdi/streams{{ end }}}
  - {name: KDI_LAKE, value: {{ required "lake: root of the tables, such as s3://bucket/lake" .Values.lake | quote }}}
  - {name: KDI_DRIVER, value: shared}
  - {name: KDI_AUTOMATION, value: {{ if .Values.automation }}"on"{{ else }}"off"{{ end }}}
  - {name: KDI_SPARK_MASTER, value: {{ if .Values.spark.executors.instances }}"k8s://https://kubernetes.default.svc"{{ else }}"local[{{ include "kdi.cores" . }}]"{{ end }}}
  - {name: SPARK_DRIVER_MEMORY, value: {{ .Values.spark.memory | quote }}}
  - {name: DAGSTER_HOME, value: /var/lib/kdi/dagster}
  - {name: PGHOST, value: {{ required "postgres.host: the server of Dagster's database" .Values.postgres.host | quote }}}
  - {name: PGUSER, value: {{ .Values.postgres.user | quote }}}
  - {name: PGDATABASE, value: {{ .Values.postgres.database | quote }}}
  - {name: PGSSLMODE, value: {{ .Values.postgres.sslMode | quote }}}
  - {name: PGPASSWORD, valueFrom: {secretKeyRef: {name: {{ include "kdi.secret" . }}, key: PGPASSWORD}}}
{{- if .Values.spark.executors.instances }}
  - {name: SPARK_CONF_DIR, value: /etc/kdi/spark} # only the driver has it
{{- end }}
{{- range $name, $value := .Values.env }}
  - {name: {{ $name }}, value: {{ $value | quote }}}
{{- end }}
{{- end }}

{{/* Of the containers that reach Kafka: all secrets. */}}
{{- define "kdi.secrets" -}}
envFrom:
  - secretRef: {name: {{ include "kdi.secret" . }}}
{{- end }}

{{- define "kdi.secret" -}}
{{ required "secret: name of a Secret with PGPASSWORD and the secrets of Kafka" .Values.secret | quote }}
{{- end }}

{{/* The folders that a container writes to; the rest of its file system is read-only. */}}
{{- define "kdi.mounts" -}}
- {name: home, mountPath: /var/lib/kdi}
- {name: tmp, mountPath: /tmp}
- {name: config, mountPath: /etc/kdi/workspace.yaml, subPath: workspace.yaml}
{{- end }}

{{- define "kdi.volumes" -}}
- {name: home, emptyDir: {sizeLimit: {{ . }}}}
- {name: tmp, emptyDir: {sizeLimit: 1Gi}}
{{- end }}

{{/* Fills the home. Dagster's settings must be in a folder that it can write to. Documents are copied, because a mounted
ConfigMap shows each file twice, once in a hidden folder. The jars stay in the image. */}}
{{- define "kdi.home" -}}
- name: home
  {{- include "kdi.container" . | nindent 2 }}
  command:
    - sh
    - -c
    - >-
      ln -sfn /opt/kdi/home/jars /var/lib/kdi/jars
      && mkdir -p /var/lib/kdi/dagster /var/lib/kdi/streams
      && cp /config/dagster.yaml /var/lib/kdi/dagster/
      && if [ -d /documents ]; then cp -rL /documents/* /var/lib/kdi/streams/; fi
  resources: {requests: {cpu: 10m, memory: 32Mi}, limits: {memory: 32Mi}}
  volumeMounts:
    - {name: home, mountPath: /var/lib/kdi}
    - {name: config, mountPath: /config}
{{- end }}

{{/* Whole cores of a warm driver. Not local[*]: a request bounds no JVM, which would use all cores of its node. */}}
{{- define "kdi.cores" -}}
{{- $size := toString .Values.spark.cores -}}
{{- $cores := ternary (divf (trimSuffix "m" $size) 1000) (float64 $size) (hasSuffix "m" $size) -}}
{{- max 1 (ceil $cores | int) -}}
{{- end }}

{{/* Of the ConfigMaps with these names, which a pod mounts and reads when it starts. All else that it gets is in its template. */}}
{{- define "kdi.checksum" -}}
{{- $text := "" -}}
{{- range splitList "\n---\n" (include (print .root.Template.BasePath "/config.yaml") .root) -}}
{{- if has (dig "metadata" "name" "" (fromYaml .)) $.names -}}{{- $text = print $text . -}}{{- end -}}
{{- end -}}
{{- sha256sum $text -}}
{{- end }}

{{- define "kdi.resources" -}}
resources: {requests: {cpu: {{ .cpu | quote }}, memory: {{ .memory }}}, limits: {memory: {{ .memory }}}}
{{- end }}

{{/* Of the code server's container, whose runs are four for each driver. */}}
{{- define "kdi.codeMemory" -}}
{{- $size := toString .Values.resources.code.memory -}}
{{- $number := regexFind "^[0-9.]+([eE][+]?[0-9]+)?" $size -}}
{{- printf "%v%s" (mulf (float64 $number) .Values.spark.drivers) (trimPrefix $number $size) -}}
{{- end }}
