/* Series of remote write that are known by their bytes: of version 1.0 by those before their only sample, of 2.0 by
   their symbols. The form in Python is RemoteWriteReader; tests compare the two. Shapes and results: known_series.py. */

#include "key_table.h"

enum { SAMPLE_TAG = 0x12, VALUE_TAG = 0x09, TIME_TAG = 0x10, START_TAG = 0x18 };
enum { TIME_BYTES = 6, WITH_VALUE = 18, WITHOUT_VALUE = 9 };
enum { SYMBOLS_TAG = 0x0A, EXEMPLAR_TAG = 0x22, METADATA_TAG = 0x2A, CREATED_TAG = 0x30, LABELS_AND_SAMPLE = 6 };

/* Number of fields of a body; -1: one that has no bytes, is not whole, or has a long length, or more than `most`. */
int64_t divide(int64_t n, const uint8_t *body, int64_t most, int64_t *tag, int64_t *start, int64_t *length) {
    int64_t count = 0;
    struct field field;
    for (const uint8_t *at = body; at < body + n; count++) {
        if (count == most || !next_field(&at, body + n, &field) || (field.tag & 7) != BYTES)
            return -1;
        tag[count] = (int64_t)field.tag;
        start[count] = field.begin - body;
        length[count] = field.end - field.begin;
    }
    return count;
}

struct samples {
    int64_t n;
    const int64_t *start, *length;
    int64_t *column, *time_ms, *birth_ms, *cell;
};

/* Time of the sample of `size` bytes, -1 if they are of another form. */
static inline int64_t time_of(const uint8_t *sample, int size) {
    const uint8_t *time = sample + size - TIME_BYTES;
    if (sample[0] != SAMPLE_TAG || sample[1] != size - 2 || time[-1] != TIME_TAG)
        return -1;
    if (size == WITH_VALUE && sample[2] != VALUE_TAG)
        return -1;
    int64_t time_ms = 0;
    for (int i = 0; i < TIME_BYTES; i++) {
        if ((time[i] & MORE) != (i + 1 < TIME_BYTES ? MORE : 0))
            return -1;
        time_ms |= (int64_t)(time[i] & BITS) << 7 * i;
    }
    return time_ms;
}

/* 1 if the series ends with a sample of `size` bytes and the bytes before it are a key. */
static inline int
read_one(const struct table *t, const uint8_t *body, const struct samples *s, int64_t i, int size) {
    const int64_t n = s->length[i] - size;
    if (n <= 0)
        return 0;
    const uint8_t *key = body + s->start[i], *sample = key + n;
    const int64_t time_ms = time_of(sample, size);
    if (time_ms < 0)
        return 0;
    const int64_t column = column_of(t, key, n);
    if (column == UNKNOWN)
        return 0;
    s->column[i] = column;
    s->time_ms[i] = time_ms;
    s->cell[i] = size == WITH_VALUE ? (int64_t)little_endian(sample + 3) : 0;
    return 1;
}

/* Column, time and cell of each series of version 1; column UNKNOWN: neither its time nor its cell is entered. */
void read_known(const struct table *table, const uint8_t *body, const struct samples *samples) {
    for (int64_t i = 0; i < samples->n; i++)
        if (!read_one(table, body, samples, i, WITH_VALUE) && !read_one(table, body, samples, i, WITHOUT_VALUE))
            samples->column[i] = UNKNOWN;
}

/* Number of each text, 0 of the empty one, UNKNOWN. With `adds` a text that is new gets one; FULL: grow the table. */
int32_t number_texts(struct table *table, const uint8_t *body, const struct samples *texts, int32_t adds) {
    for (int64_t i = 0; i < texts->n; i++) {
        const uint8_t *text = body + texts->start[i];
        const int64_t n = texts->length[i];
        texts->column[i] = n ? column_of(table, text, n) : 0;
        if (!adds || texts->column[i] != UNKNOWN)
            continue;
        const int64_t number = table->count + 1;
        const int32_t entered = enter(table, n, text, number);
        if (entered == FULL)
            return FULL;
        if (entered == ENTERED)
            texts->column[i] = number;
    }
    return 0;
}

struct sample {
    int64_t time_ms, birth_ms;
    uint64_t cell;
};

static int read_sample(const struct field *field, struct sample *sample) {
    struct field part;
    uint64_t seen = 0;
    for (const uint8_t *at = field->begin; at < field->end;) {
        if (!next_field(&at, field->end, &part) || !is_first(&seen, part.tag))
            return 0;
        if (part.tag == VALUE_TAG)
            sample->cell = part.number;
        else if (part.tag == TIME_TAG)
            sample->time_ms = (int64_t)part.number;
        else if (part.tag == START_TAG)
            sample->birth_ms = (int64_t)part.number;
        else
            return 0;
    }
    return 1;
}

static int has_numbers_only(const struct field *field) {
    struct field part;
    for (const uint8_t *at = field->begin; at < field->end;)
        if (!next_field(&at, field->end, &part) || (part.tag & 7) != VARINT)
            return 0;
    return 1;
}

/* Key of a series of version 2: the numbers of its symbols. */
static int read_symbols(const struct field *field, const struct samples *symbols, struct key *key) {
    for (const uint8_t *at = field->begin; at < field->end;) {
        uint64_t place;
        if (!read_varint(&at, field->end, LENGTH_BYTES, &place) || place >= (uint64_t)symbols->n)
            return 0;
        if (symbols->column[place] == UNKNOWN)
            return 0;
        const int32_t number = (int32_t)symbols->column[place];
        put(key, &number, sizeof number);
    }
    return 1;
}

/* 1: the series has one sample, and no fields but symbols, exemplars, which are skipped, metadata and created time. */
static int read_series(
    const uint8_t *at, const uint8_t *end, const struct samples *symbols, struct key *key, struct sample *sample) {
    struct field field;
    uint64_t seen = 0;
    int64_t created_ms = 0;
    while (at < end) {
        if (!next_field(&at, end, &field))
            return 0;
        if (field.tag == EXEMPLAR_TAG)
            continue;
        int good = is_first(&seen, field.tag);
        if (field.tag == SYMBOLS_TAG)
            good = good && read_symbols(&field, symbols, key);
        else if (field.tag == SAMPLE_TAG)
            good = good && read_sample(&field, sample);
        else if (field.tag == METADATA_TAG)
            good = good && has_numbers_only(&field);
        else if (field.tag == CREATED_TAG)
            created_ms = (int64_t)field.number;
        else
            good = 0;
        if (!good)
            return 0;
    }
    if (!sample->birth_ms)
        sample->birth_ms = created_ms;
    return (seen & LABELS_AND_SAMPLE) == LABELS_AND_SAMPLE;
}

/* Column, time, start and cell of each series of version 2; column UNKNOWN: the others are not entered. With `adds`
   instead enter the series that have a column; FULL: grow the table. */
int32_t read_symbolic(
    struct table *table, const uint8_t *body, const struct samples *symbols, const struct samples *s, int32_t adds) {
    struct key key;
    for (int64_t i = 0; i < s->n; i++) {
        const uint8_t *begin = body + s->start[i];
        struct sample sample = {0, 0, 0};
        key.n = 0;
        const int good = read_series(begin, begin + s->length[i], symbols, &key, &sample);
        if (adds) {
            if (good && s->column[i] != UNKNOWN && enter_key(table, &key, s->column[i]) == FULL)
                return FULL;
            continue;
        }
        s->column[i] = good ? column_of_key(table, &key) : UNKNOWN;
        s->time_ms[i] = sample.time_ms;
        s->birth_ms[i] = sample.birth_ms;
        s->cell[i] = (int64_t)sample.cell;
    }
    return 0;
}
