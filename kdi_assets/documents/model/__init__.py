"""What documents declare: streams, tables that follow others, connections, formats, rules.

The fields of streams are in ``fields``, for Kinesis also in ``kinesis_stream``; those of followers in ``refined_table``
and ``served_table``. ``stream`` has the class ``Stream``, which the engine takes.
"""
