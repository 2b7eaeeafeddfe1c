/* Fields of protobuf and a hash table with keys of bytes, for the libraries of receivers: each has its own copy.
   Python has the arrays (key_table.py); no function allocates, reads outside of them, or keeps a pointer. */

#include <stdint.h>
#include <string.h>

enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 }; /* wire types, the low 3 bits of a tag */
enum { LENGTH_BYTES = 4, NUMBER_BYTES = 9 }; /* most bytes of a varint; the parser reads longer ones */
enum { PROBES = 256 }; /* most slots that are compared: keys that collide cannot make a body slow */
enum { KEY_BYTES = 8192, TOO_LONG = KEY_BYTES + 1 }; /* of keys that are put together; longer ones are unknown */
enum { UNKNOWN = -2 };
enum { ENTERED = 1, THERE = 0, NO_PLACE = -1, FULL = -2 };

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
    int64_t count, most, used, room; /* keys, and bytes of keys */
    struct slot *slots;
    uint8_t *keys;
};

static inline uint64_t little_endian(const uint8_t *bytes) {
    uint64_t word = 0;
    for (int i = 0; i < 8; i++)
        word |= (uint64_t)bytes[i] << 8 * i;
    return word;
}

/* --- fields of a message */

struct field {
    uint64_t tag, number;               /* number: of a varint or of 64 bits */
    const uint8_t *first, *begin, *end; /* tag, and content of bytes */
};

static inline int read_varint(const uint8_t **at, const uint8_t *end, int most, uint64_t *number) {
    *number = 0;
    for (int i = 0; i < most && *at < end; i++) {
        const uint8_t byte = *(*at)++;
        *number |= (uint64_t)(byte & BITS) << 7 * i;
        if (!(byte & MORE))
            return 1;
    }
    return 0;
}

/* Read the field at `*at` and move behind it. 0: it is not whole, or of a form that is left to the parser. */
static inline int next_field(const uint8_t **at, const uint8_t *end, struct field *field) {
    uint64_t length = 0;
    *field = (struct field){0, 0, *at, *at, *at};
    if (!read_varint(at, end, LENGTH_BYTES, &field->tag) || field->tag < 8)
        return 0;
    switch (field->tag & 7) {
    case VARINT:
        return read_varint(at, end, NUMBER_BYTES, &field->number);
    case FIXED64:
        length = 8;
        break;
    case FIXED32:
        length = 4;
        break;
    case BYTES:
        if (!read_varint(at, end, LENGTH_BYTES, &length))
            return 0;
        break;
    default:
        return 0;
    }
    if (length > (uint64_t)(end - *at))
        return 0;
    field->begin = *at;
    field->end = *at += length;
    if ((field->tag & 7) == FIXED64)
        field->number = little_endian(field->begin);
    return 1;
}

/* 0: a field of this number, below 64, was there before. */
static inline int is_first(uint64_t *seen, uint64_t tag) {
    const uint64_t bit = 1ull << (tag >> 3 & 63), before = *seen & bit;
    *seen |= bit;
    return !before;
}

/* --- table */

static inline uint64_t fold(uint64_t a, uint64_t b) {
    const unsigned __int128 product = (unsigned __int128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static inline uint64_t hash_of(const uint8_t *key, int64_t n, uint64_t seed) {
    uint64_t hash = fold(seed ^ (uint64_t)n, FACTOR), word;
    for (; n >= (int64_t)sizeof word; key += sizeof word, n -= (int64_t)sizeof word) {
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

static inline int64_t column_of(const struct table *t, const uint8_t *key, int64_t n) {
    const struct slot *slot = slot_of(t, hash_of(key, n, t->seed), key, n);
    return slot && slot->length ? slot->column : UNKNOWN;
}

/* ENTERED; THERE: it was there; NO_PLACE: no slot is free near its own, or there are too many; FULL: grow the table. */
int32_t enter(struct table *table, int64_t n, const uint8_t *key, int64_t column) {
    const uint64_t hash = hash_of(key, n, table->seed);
    struct slot *slot = slot_of(table, hash, key, n);
    if (slot == NULL)
        return NO_PLACE;
    if (slot->length)
        return THERE;
    if (table->count >= table->most)
        return NO_PLACE;
    if (2 * (uint64_t)table->count >= table->size || n > table->room - table->used)
        return FULL;
    memcpy(table->keys + table->used, key, (size_t)n);
    *slot = (struct slot){hash, table->used, n, column};
    table->used += n;
    table->count++;
    return ENTERED;
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

struct key {
    int64_t n; /* or TOO_LONG */
    uint8_t bytes[KEY_BYTES];
};

static inline void put(struct key *key, const void *bytes, int64_t n) {
    if (n > KEY_BYTES - key->n) {
        key->n = TOO_LONG;
        return;
    }
    memcpy(key->bytes + key->n, bytes, (size_t)n);
    key->n += n;
}

static inline int64_t column_of_key(const struct table *table, const struct key *key) {
    return key->n > KEY_BYTES || key->n == 0 ? UNKNOWN : column_of(table, key->bytes, key->n);
}

static inline int32_t enter_key(struct table *table, const struct key *key, int64_t column) {
    return key->n > KEY_BYTES || key->n == 0 ? NO_PLACE : enter(table, key->n, key->bytes, column);
}
