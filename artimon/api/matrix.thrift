/**
 * Questions to Artimon in one call each: ask for variables by name and labels, or in the query language, and get a
 * matrix, series by buckets of time.
 *
 * Transport: framed. Protocol: binary, strict. One port, 8781 unless told otherwise; `artimon env` prints it as
 * ARTIMON_MATRIX=host:port. Strings are UTF-8. Times are milliseconds since 1970 in UTC. No authentication.
 *
 * A connection may be kept and used for many calls, one after the other. It is closed after 300 s without a call, so be
 * ready to connect again. A request has at most 64 KiB, an answer at most 16,000,000 bytes, which any client of Apache
 * Thrift takes without being configured.
 */
namespace perl artimon
namespace py artimon_matrix
namespace java org.artimon.matrix
namespace cpp artimon
namespace go artimon
namespace rb Artimon

/** The type of a series: which of the lists of its row is set. */
enum Type {
  INTEGER = 0,
  DOUBLE = 1,
  BOOLEAN = 2,
  STRING = 3
}

/**
 * `n` buckets that follow one another, oldest first. Bucket i covers the time
 * (start_ms + i * step_ms, start_ms + (i + 1) * step_ms] and is named by its end; the last one ends at end_ms.
 */
struct Grid {
  1: i64 start_ms,
  2: i64 end_ms,
  3: i64 step_ms,
  4: i32 n
}

/**
 * One series. Exactly one of the four lists of values is set, that of `type`. It has one entry for each bucket, and so has
 * `present`. Where `present` is false the value is missing, and its entry (0, false or "") means nothing.
 */
struct Row {
  /** name{label="value",…}, labels sorted: the identity of the series as text. */
  1: string series,
  /** Empty where an operation dropped it. */
  2: string name,
  3: map<string, string> labels,
  4: Type type,
  5: list<bool> present,
  /** All 64 bits count. */
  6: optional list<i64> integers,
  /** A NaN that is present is a value that somebody stored. */
  7: optional list<double> doubles,
  8: optional list<bool> booleans,
  9: optional list<string> strings
}

/** The answer to a question: rows in the order of name and labels, all on one grid. */
struct Answer {
  1: Grid grid,
  2: list<Row> rows,
  /** What a reader must know: shards that did not answer, series that were left out. */
  3: list<string> notes,
  /** Whether memory held the whole range. */
  4: bool complete,
  /** Whether a shard did not answer, so that series may be missing. */
  5: bool partial
}

/** Why there is no answer. */
exception Refused {
  /** What is wrong and what to do, for a person. */
  1: string message,
  /** Where in the text of the question, counted in characters from 0; -1 where no place is meant. */
  2: i32 position,
  /** How many characters are meant; 0 where no place is. */
  3: i32 length,
  /**
   * For a program: "bad" the question is wrong, "large" it asks for too much, "busy" try again later, "late" it took too
   * long, "unavailable" no shard answers, "defect" an error of the server, which its log tells.
   */
  4: string reason
}

/** The service. Both calls only read, so they may be repeated. */
service Matrix {
  /**
   * The answer to `q`, a text of the query language such as fetch('http.requests').rate('5m').sum(by=['dc']), as if it
   * were `time_ms`; 0 is now.
   */
  Answer query(1: string q, 2: i64 time_ms) throws (1: Refused refused),

  /**
   * All variables of a name with these labels for the last `last_ms` milliseconds: the newest value of each bucket. The
   * name is exact, or ends with ".*" and stands for all that begin so. An empty label value asks for series without the
   * label. The same as query("fetch('name{label=\"value\",…}').range('…ms')", 0).
   */
  Answer fetch(1: string name, 2: map<string, string> labels, 3: i64 last_ms) throws (1: Refused refused)
}
