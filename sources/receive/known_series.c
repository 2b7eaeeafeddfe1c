/* Series of a body of remote write 1.0 that are known by the bytes before their only sample. The form in Python is
   RemoteWriteReader._add_known; tests compare the two. No function allocates, reads outside of its arrays, or keeps a
   pointer. Shapes and results: known_series.py. */

#include <stdint.h>
#include <string.h>

enum { SERIES_TAG = 0x0A, SAMPLE_TAG = 0x12, VALUE_TAG = 0x09, TIME_TAG = 0x10 };
enum { LENGTH_BYTES = 4, TIME_BYTES = 6, WITH_VALUE = 18, WITHOUT_VALUE = 9 };
enum { PROBES = 256 }; /* most slots that are compared: keys that collide cannot make a body slow */
enum { UNKNOWN = -2 };

#define MORE 0x80u /* highest bit of a byte of a varint that another byte follows */
#define BITS 0x7Fu
#define FACTOR 0x9E3779B97F4A7C15u
#define LAST_FACTOR 0xE7037ED1A0B428DBu

struct slot {
    uint64_t hash;
    int64_t start, length, column; /* bytes of the key; length 0: free */
};

struct table {
    uint64_t size, seed; /* size: a power of 2 */
    struct slot *slots;
    uint8_t *keys;
};

/* Number of series; -1: another field, bytes that are not there, a long length, or more than `most` series. */
int64_t divide(int64_t n, const uint8_t *body, int64_t most, int64_t *start, int64_t *length) {
    int64_t count = 0;
    for (int64_t at = 0; at < n; count++) {
        if (count == most || body[at++] != SERIES_TAG)
            return -1;
        int64_t size = 0;
        for (int i = 0;; i++) {
            if (at == n || i == LENGTH_BYTES)
                return -1;
            size |= (int64_t)(body[at] & BITS) << 7 * i;
            if (!(body[at++] & MORE))
                break;
        }
        if (size > n - at)
            return -1;
        start[count] = at;
        length[count] = size;
        at += size;
    }
    return count;
}

static inline uint64_t fold(uint64_t a, uint64_t b) {
    const unsigned __int128 product = (unsigned __int128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static inline uint64_t hash_of(const uint8_t *key, int64_t n, uint64_t seed) {
    uint64_t hash = fold(seed ^ (uint64_t)n, FACTOR), word;
    for (; n >= (int64_t)sizeof word; key += sizeof word, n -= sizeof word) {
        memcpy(&word, key, sizeof word);
        hash = fold(hash ^ word, FACTOR);
    }
    word = 0;
    memcpy(&word, key, (size_t)n);
    return fold(hash ^ word, LAST_FACTOR);
}

/* Slot of a key, or the free one that it may have; NULL if neither is near. */
static inline struct slot *slot_of(const struct table *t, uint64_t hash, const uint8_t *key, int64_t n) {
    for (uint64_t i = 0; i < PROBES; i++) {
        struct slot *slot = t->slots + ((hash + i) & (t->size - 1));
        if (slot->length == 0)
            return slot;
        if (slot->hash == hash && slot->length == n && memcmp(t->keys + slot->start, key, (size_t)n) == 0)
            return slot;
    }
    return NULL;
}

/* 1: entered, and its bytes copied to `start`; 0: it was there; -1: no slot is free near its own. */
int32_t enter(const struct table *table, int64_t n, const uint8_t *key, int64_t start, int64_t column) {
    const uint64_t hash = hash_of(key, n, table->seed);
    struct slot *slot = slot_of(table, hash, key, n);
    if (slot == NULL)
        return -1;
    if (slot->length)
        return 0;
    memcpy(table->keys + start, key, (size_t)n);
    *slot = (struct slot){hash, start, n, column};
    return 1;
}

/* Enter the keys of a table in a larger one with the same bytes of keys and the same seed. */
void enter_all(const struct table *from, const struct table *to) {
    for (uint64_t i = 0; i < from->size; i++) {
        const struct slot *old = from->slots + i;
        struct slot *slot = old->length ? slot_of(to, old->hash, from->keys + old->start, old->length) : NULL;
        if (slot)
            *slot = *old;
    }
}

struct samples {
    int64_t n;
    const int64_t *start, *length;
    int64_t *column, *time_ms, *cell;
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

static inline uint64_t little_endian(const uint8_t *bytes) {
    uint64_t word = 0;
    for (int i = 0; i < 8; i++)
        word |= (uint64_t)bytes[i] << 8 * i;
    return word;
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
    const struct slot *slot = slot_of(t, hash_of(key, n, t->seed), key, n);
    if (slot == NULL || slot->length == 0)
        return 0;
    s->column[i] = slot->column;
    s->time_ms[i] = time_ms;
    s->cell[i] = size == WITH_VALUE ? (int64_t)little_endian(sample + 3) : 0;
    return 1;
}

/* Column, time and cell of each series; column UNKNOWN: neither its time nor its cell is entered. */
void read_known(const struct table *table, const uint8_t *body, const struct samples *samples) {
    for (int64_t i = 0; i < samples->n; i++)
        if (!read_one(table, body, samples, i, WITH_VALUE) && !read_one(table, body, samples, i, WITHOUT_VALUE))
            samples->column[i] = UNKNOWN;
}
