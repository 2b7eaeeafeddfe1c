// Internal service of one varstore shard. Feed: artimon/model/feed_codec.py. Requests and answers of select, find: artimon/model/select.py.
exception ShardError { 1: string message }

struct FeedAnswer {
  1: i64 next_offset
  2: i64 applied
  3: i64 repeated
  4: i64 late
  5: i64 future
}

service Shard {
  // parts: entries, samples, strings (Arrow IPC)
  FeedAnswer feed(1: list<binary> parts) throws (1: ShardError error)
  // JSON: [{"vshards": "<hex mask>", "positions": [[topic_id, partition, next_offset], ...], "ready": true}, ...]
  string groups()
  // the log of this partition was truncated: messages at this offset and above are new from now on
  void rewind(1: string topic_id, 2: i32 partition, 3: i64 offset)
  // Snapshot of virtual shards (hex mask) at one point (docs/formats/image.md): begin answers JSON {"id": "...", "groups": [...]};
  // next answers its parts in order, an empty binary at the end; end frees it (so do 60 s without a call).
  string export_begin(1: string vshards) throws (1: ShardError error)
  binary export_next(1: string id, 2: i32 part) throws (1: ShardError error)
  void export_end(1: string id)
  // drop these virtual shards; answers the hex mask of those that were held
  string drop(1: string vshards) throws (1: ShardError error)
  // request: JSON; answer: Arrow IPC
  binary select(1: binary request) throws (1: ShardError error)
  // request: JSON; answer: Arrow IPC (artimon/compute/aggregate.py). After an error that begins "not pushed" use select instead.
  binary aggregate(1: binary request) throws (1: ShardError error)
  // JSON in, JSON out: {"what": "names" | "label_values" | "find", ...}
  binary find(1: binary request) throws (1: ShardError error)
  // JSON
  binary status()
}
