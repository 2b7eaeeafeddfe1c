/* Points of OTLP that are known by the bytes of their resource, scope, metric and attributes: numbers and histograms.
   The form in Python is OtlpReader; tests compare the two. Shapes and results: known_points.py.

   A resource, a scope and a metric have a number each: the value of the key of the number around it and of all its
   fields but those that it contains. A point has the number of its metric, its attributes and its bounds as its key. */

#include "key_table.h"

/* Tags of the fields that messages contain, by message. */
enum { RESOURCE = 0x0A, SCOPE = 0x12, METRIC = 0x12, POINT = 0x0A, TEMPORALITY = 0x10 };
enum { GAUGE = 0x2A, SUM = 0x3A, HISTOGRAM = 0x4A, EXPONENTIAL = 0x52, SUMMARY = 0x5A };
enum { START = 0x11, TIME = 0x19 };
enum { AS_DOUBLE = 0x21, EXEMPLAR = 0x2A, AS_INT = 0x31, ATTRIBUTE = 0x3A, FLAGS = 0x40 };
enum { COUNT = 0x21, TOTAL = 0x29, COUNTS = 0x32, BOUNDS = 0x3A, HISTOGRAM_EXEMPLAR = 0x42 };
enum { HISTOGRAM_ATTRIBUTE = 0x4A, HISTOGRAM_FLAGS = 0x50, MIN = 0x59, MAX = 0x61 };
enum { DELTA = 1, CUMULATIVE = 2, NS_PER_MS = 1000000 };
enum { INTEGER = 0, DOUBLE = 1 }; /* artimon.model.values.ValueType */
enum { DAMAGED = -1, NO_CONTEXT = -1 };

/* Points of a body. `place` has one entry a point: where its columns begin in `columns`, or UNKNOWN. The arrays from
   `column` on have one entry a sample. */
struct points {
    int64_t most, points, samples;
    int64_t *place;
    const int64_t *columns;
    int64_t *column, *time_ms, *birth_ms, *cell, *line;
    uint8_t *type, *delta;
};

struct walk {
    struct table *table;
    struct points *p;
    int64_t line;      /* number of the metric */
    int32_t adds;      /* number what is new, and enter the points that have a place */
    uint64_t kind, temporality; /* of the metric; kind: the tag of its data */
};

struct point {
    uint64_t time_ns, start_ns, type, cell, count, sum;
    int has_sum;
    struct field counts, bounds; /* of a histogram */
};

/* Set the number of a resource, scope or metric, UNKNOWN if it has none. Return 0 or FULL. */
static int32_t identify(struct walk *w, const struct key *key, int64_t *id) {
    *id = column_of_key(w->table, key);
    if (!w->adds || *id != UNKNOWN)
        return 0;
    const int64_t number = w->table->count;
    const int32_t entered = enter_key(w->table, key, number);
    if (entered == ENTERED)
        *id = number;
    return entered == FULL ? FULL : 0;
}

static void begin_key(struct key *key, int64_t context) {
    key->n = context == UNKNOWN ? TOO_LONG : 0;
    put(key, &context, sizeof context);
}

/* Key of a message: the number of its context, and all fields but those of the tag `child`. 0: damaged. */
static int put_others(struct key *key, int64_t context, const struct field *field, uint64_t child) {
    struct field part;
    begin_key(key, context);
    for (const uint8_t *at = field->begin; at < field->end;) {
        if (!next_field(&at, field->end, &part))
            return 0;
        if (part.tag != child)
            put(key, part.first, at - part.first);
    }
    return 1;
}

static int read_time(const struct field *part, struct point *point) {
    if (part->tag == START)
        point->start_ns = part->number;
    else if (part->tag == TIME)
        point->time_ns = part->number;
    else
        return 0;
    return 1;
}

/* 1: a number without flags; its attributes are added to the key. Exemplars are skipped. */
static int read_number(const struct field *field, struct key *key, struct point *point) {
    struct field part;
    uint64_t seen = 0;
    point->type = DOUBLE;
    for (const uint8_t *at = field->begin; at < field->end;) {
        if (!next_field(&at, field->end, &part))
            return 0;
        if (part.tag == ATTRIBUTE)
            put(key, part.first, at - part.first);
        if (part.tag == ATTRIBUTE || part.tag == EXEMPLAR)
            continue;
        const int is_value = part.tag == AS_DOUBLE || part.tag == AS_INT;
        if (!is_first(&seen, is_value ? AS_DOUBLE : part.tag))
            return 0;
        if (is_value) {
            point->type = part.tag == AS_INT ? INTEGER : DOUBLE;
            point->cell = part.number;
        } else if (!(part.tag == FLAGS && part.number == 0) && !read_time(&part, point))
            return 0;
    }
    return 1;
}

/* 1: a field of a histogram that is read or may be skipped. */
static int read_part(const struct field *part, struct point *point) {
    switch (part->tag) {
    case COUNT:
        point->count = part->number;
        return 1;
    case TOTAL:
        point->sum = part->number;
        return point->has_sum = 1;
    case COUNTS:
        point->counts = *part;
        return 1;
    case BOUNDS:
        point->bounds = *part;
        return 1;
    case MIN:
    case MAX:
        return 1;
    case HISTOGRAM_FLAGS:
        return part->number == 0;
    default:
        return read_time(part, point);
    }
}

/* 1: a histogram without flags, with counts and bounds that fit; its attributes and bounds are added to the key. */
static int read_histogram(const struct field *field, struct key *key, struct point *point) {
    struct field part;
    uint64_t seen = 0;
    point->counts.begin = point->counts.end = point->bounds.begin = point->bounds.end = field->end;
    for (const uint8_t *at = field->begin; at < field->end;) {
        if (!next_field(&at, field->end, &part))
            return 0;
        if (part.tag == HISTOGRAM_ATTRIBUTE)
            put(key, part.first, at - part.first);
        if (part.tag == HISTOGRAM_ATTRIBUTE || part.tag == HISTOGRAM_EXEMPLAR)
            continue;
        if (!is_first(&seen, part.tag) || !read_part(&part, point))
            return 0;
    }
    const int64_t counts = point->counts.end - point->counts.begin, bounds = point->bounds.end - point->bounds.begin;
    const uint8_t form = (uint8_t)(2 * (counts > 0) + point->has_sum);
    put(key, &form, sizeof form);
    put(key, point->bounds.begin, bounds);
    return point->count <= INT64_MAX && counts % 8 == 0 && bounds % 8 == 0 && (!counts || counts == bounds + 8);
}

/* 0: too many. */
static int add_sample(const struct walk *w, const struct point *point, int64_t at, uint64_t type, uint64_t cell) {
    struct points *p = w->p;
    if (p->samples == p->most)
        return 0;
    p->column[p->samples] = p->columns[at];
    p->time_ms[p->samples] = (int64_t)(point->time_ns / NS_PER_MS);
    p->birth_ms[p->samples] = w->kind == GAUGE ? 0 : (int64_t)(point->start_ns / NS_PER_MS);
    p->cell[p->samples] = (int64_t)cell;
    p->line[p->samples] = w->line;
    p->type[p->samples] = (uint8_t)type;
    p->delta[p->samples++] = w->temporality == DELTA;
    return 1;
}

/* Samples of a point whose columns begin at `at`. 1: added; UNKNOWN: a count is too great; DAMAGED: too many. */
static int add_point(const struct walk *w, const struct point *point, int64_t at) {
    if (w->kind != HISTOGRAM)
        return add_sample(w, point, at, point->type, point->cell) ? 1 : DAMAGED;
    const int64_t counts = (point->counts.end - point->counts.begin) / 8, before = w->p->samples;
    uint64_t total = counts ? 0 : point->count;
    for (int64_t i = 0; i < (counts ? counts : 1); i++) {
        const uint64_t count = counts ? little_endian(point->counts.begin + 8 * i) : 0;
        if (count > INT64_MAX - total) {
            w->p->samples = before;
            return UNKNOWN;
        }
        total += count;
        if (!add_sample(w, point, at++, INTEGER, total))
            return DAMAGED;
    }
    if (!add_sample(w, point, at++, INTEGER, point->count))
        return DAMAGED;
    return !point->has_sum || add_sample(w, point, at, DOUBLE, point->sum) ? 1 : DAMAGED;
}

static int32_t read_point(struct walk *w, int64_t metric, const struct field *field, struct key *key) {
    struct point point;
    memset(&point, 0, sizeof point);
    struct points *p = w->p;
    if (p->points == p->most)
        return DAMAGED;
    int64_t *place = p->place + p->points++;
    begin_key(key, metric);
    const int good = metric != UNKNOWN && (w->kind == HISTOGRAM ? read_histogram : read_number)(field, key, &point);
    if (w->adds)
        return good && *place != UNKNOWN && enter_key(w->table, key, *place) == FULL ? FULL : 0;
    *place = good ? column_of_key(w->table, key) : UNKNOWN;
    if (*place == UNKNOWN)
        return 0;
    const int added = add_point(w, &point, *place);
    if (added == UNKNOWN)
        *place = UNKNOWN;
    return added == DAMAGED ? DAMAGED : 0;
}

/* Number of a metric: that of its scope, all fields but its points, and the tag of its data. Points of other forms than
   numbers and histograms are those of an unknown one. */
static int32_t identify_metric(struct walk *w, const struct field *data, struct key *key, int64_t *metric) {
    struct field part;
    const uint8_t kind = (uint8_t)data->tag;
    put(key, &kind, sizeof kind);
    w->kind = data->tag;
    w->temporality = 0;
    for (const uint8_t *at = data->begin; at < data->end;) {
        if (!next_field(&at, data->end, &part))
            return DAMAGED;
        if (part.tag == POINT)
            continue;
        put(key, part.first, at - part.first);
        if (part.tag == TEMPORALITY && w->kind != GAUGE)
            w->temporality = part.number;
    }
    const int32_t done = identify(w, key, metric);
    if (w->kind != GAUGE && (w->temporality != DELTA && w->temporality != CUMULATIVE))
        *metric = UNKNOWN;
    if (w->kind == EXPONENTIAL || w->kind == SUMMARY)
        *metric = UNKNOWN;
    return done;
}

static int32_t read_metric(struct walk *w, int64_t scope, const struct field *field) {
    struct key key;
    struct field part, data = {0, 0, NULL, NULL, NULL};
    int64_t metric;
    w->line++;
    begin_key(&key, scope);
    for (const uint8_t *at = field->begin; at < field->end;) {
        if (!next_field(&at, field->end, &part))
            return DAMAGED;
        const uint64_t tag = part.tag;
        if (tag != GAUGE && tag != SUM && tag != HISTOGRAM && tag != EXPONENTIAL && tag != SUMMARY)
            put(&key, part.first, at - part.first);
        else if (data.tag)
            return DAMAGED;
        else
            data = part;
    }
    int32_t done = identify_metric(w, &data, &key, &metric);
    for (const uint8_t *at = data.begin; !done && at < data.end;) {
        next_field(&at, data.end, &part);
        if (part.tag == POINT)
            done = read_point(w, metric, &part, &key);
    }
    return done;
}

/* Read the metrics of a scope, or the scopes of a resource. */
static int32_t read_context(struct walk *w, int64_t context, const struct field *field, int is_scope) {
    const uint64_t child = is_scope ? METRIC : SCOPE;
    struct key key;
    struct field part;
    int64_t id;
    if (!put_others(&key, context, field, child))
        return DAMAGED;
    int32_t done = identify(w, &key, &id);
    for (const uint8_t *at = field->begin; !done && at < field->end;) {
        next_field(&at, field->end, &part);
        if (part.tag == child)
            done = is_scope ? read_metric(w, id, &part) : read_context(w, id, &part, 1);
    }
    return done;
}

/* 0: done; DAMAGED: too many points or samples, or a form that is left to the parser; FULL: grow the table. */
int32_t read_points(struct table *table, int64_t n, const uint8_t *body, struct points *points, int32_t adds) {
    struct walk walk = {table, points, 0, adds, 0, 0};
    struct field part;
    int32_t done = 0;
    points->points = points->samples = 0;
    for (const uint8_t *at = body; !done && at < body + n;) {
        if (!next_field(&at, body + n, &part) || part.tag != RESOURCE)
            return DAMAGED;
        done = read_context(&walk, NO_CONTEXT, &part, 0);
    }
    return done;
}
