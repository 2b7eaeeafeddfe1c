// Programs in any language send events to a flow (its source `thrift`); docs/flows.md. Framed, binary.

struct Event {
  1: map<string, string> headers  // at most 64, together at most 32 KiB
  2: binary body                  // at most 256 KiB
}

// ok: the flow has all events of the call, with its channel's guarantee. Not ok: it has none; `reason` begins with
//   full: no room now; send the same call again later
//   failed: it may or may not be kept; send the same call again
//   bad: the events exceed a limit, or the number was used before for others (of the last 100,000 calls since the agent
//        started; the flow drops an older one as a repeat); do not send them again
struct Taken {
  1: bool ok
  2: string reason
}

service Events {
  // `producer`: random, chosen by a program at its start (1 to 64 bytes). `sequence`: 0, 1, 2, … of its calls.
  // `time_ms`: time of the call, epoch ms. A call that is sent again with equal arguments is taken once.
  Taken append(1: binary producer, 2: i64 sequence, 3: i64 time_ms, 4: list<Event> events)
}
