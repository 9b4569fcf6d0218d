import java.io.BufferedReader;
import java.io.File;
import java.io.FileOutputStream;
import java.io.FileReader;
import java.io.OutputStream;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.SafeModeAction;
import org.apache.hadoop.hdfs.MiniDFSCluster;
import org.apache.hadoop.yarn.conf.YarnConfiguration;
import org.apache.hadoop.yarn.server.MiniYARNCluster;

/** A NameNode, a DataNode, a ResourceManager and a NodeManager in one JVM; containers are processes of this machine. */
public final class MiniCluster {

    /** The queue {@code narrow} has room for no application: what is sent to it waits. */
    private static final Map<String, String> QUEUES = Map.of(
        "root.queues", "default,narrow",
        "root.default.capacity", "99",
        "root.narrow.capacity", "1",
        "root.narrow.maximum-capacity", "1",
        "maximum-am-resource-percent", "0.9");

    /**
     * Arguments: an empty folder for all data, a folder that gets the files of {@code HADOOP_CONF_DIR}, and a pipe from
     * which commands are read, a line each.
     */
    public static void main(String[] arguments) throws Exception {
        File data = new File(arguments[0]);
        Configuration files = new Configuration();
        files.set(MiniDFSCluster.HDFS_MINIDFS_BASEDIR, new File(data, "dfs").getPath());
        files.set("dfs.replication", "1");
        files.set("dfs.datanode.du.reserved", "0");
        MiniDFSCluster dfs = new MiniDFSCluster.Builder(files).numDataNodes(1).build();
        Configuration clients = new Configuration(false);
        clients.set("fs.defaultFS", dfs.getURI().toString());
        clients.set("dfs.replication", "1");

        YarnConfiguration yarn = new YarnConfiguration();
        yarn.addResource(clients);
        yarn.setInt("yarn.scheduler.minimum-allocation-mb", 128);
        yarn.setInt("yarn.minicluster.yarn.nodemanager.resource.memory-mb", 6144);
        yarn.setBoolean("yarn.nodemanager.vmem-check-enabled", false);
        yarn.setBoolean("yarn.nodemanager.pmem-check-enabled", false);
        // The tests' machine may have a disk that is nearly full.
        yarn.setFloat("yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage", 99f);
        QUEUES.forEach((name, value) -> yarn.set("yarn.scheduler.capacity." + name, value));
        MiniYARNCluster cluster = new MiniYARNCluster("mini", 1, 1, 1);
        cluster.init(yarn);
        cluster.start();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            cluster.stop(); // with the containers
            dfs.shutdown();
        }));

        write(clients, new File(arguments[1], "core-site.xml"));
        write(cluster.getConfig(), new File(arguments[1], "yarn-site.xml"));
        System.out.println("ready " + dfs.getURI());
        while (true) { // each writer of the pipe is one reader of it
            try (BufferedReader commands = new BufferedReader(new FileReader(arguments[2]))) {
                for (String command; (command = commands.readLine()) != null;) {
                    carryOut(command, dfs, cluster);
                    System.out.println("done " + command);
                }
            }
        }
    }

    private static void carryOut(String command, MiniDFSCluster dfs, MiniYARNCluster cluster) throws Exception {
        switch (command) {
            case "stop namenode" -> dfs.shutdownNameNode(0);
            case "start namenode" -> dfs.restartNameNode(0);
            case "enter safe mode" -> dfs.getFileSystem().setSafeMode(SafeModeAction.ENTER);
            case "leave safe mode" -> dfs.getFileSystem().setSafeMode(SafeModeAction.LEAVE);
            case "stop resourcemanager" -> cluster.getResourceManager().stop();
            default -> throw new IllegalArgumentException(command);
        }
    }

    private static void write(Configuration configuration, File file) throws Exception {
        try (OutputStream out = new FileOutputStream(file)) {
            configuration.writeXml(out);
        }
    }
}
