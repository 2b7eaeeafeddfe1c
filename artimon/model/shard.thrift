// The internal service of one varstore shard. Feed: artimon/model/feed.py. Requests and answers of select, find: artimon/model/select.py.
exception ShardError { 1: string message }

struct FeedAnswer {
  1: i64 next_offset
  2: i64 applied
  3: i64 repeated
  4: i64 late
  5: i64 future
}

struct Position {
  1: string topic_id
  2: i32 partition
  3: i64 next_offset
}

service Shard {
  // parts: entries, samples, strings (Arrow IPC)
  FeedAnswer feed(1: list<binary> parts) throws (1: ShardError error)
  list<Position> positions()
  // request: JSON; answer: Arrow IPC
  binary select(1: binary request) throws (1: ShardError error)
  // JSON in, JSON out: {"what": "names" | "label_values" | "find", ...}
  binary find(1: binary request) throws (1: ShardError error)
  // JSON
  binary status()
}
