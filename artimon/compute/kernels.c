/* Hot loops of the shards, the history, imports and answers. Each has a form in numpy beside its caller; tests compare the two. No function
   allocates, reads outside of its arrays, or keeps a pointer. Shapes, units and results: kernels.py. */

#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && defined(__linux__)
#define HOT __attribute__((target_clones("avx2", "default")))
#else
#define HOT
#endif

#define CHUNK 1024 /* samples whose cells stay in the first cache between their check and their store */

/* 1 if any of n slots is marked, else 0 after all of them were marked; a slot that occurs twice is no exception. */
int32_t mark_slots(int64_t n, const int64_t *slots, uint8_t *marks, uint8_t mark) {
    uint8_t found = 0;
    for (int64_t i = 0; i < n; i++)
        found |= marks[slots[i]] == mark;
    if (found)
        return 1;
    for (int64_t i = 0; i < n; i++)
        marks[slots[i]] = mark;
    return 0;
}

struct plain_run {
    int64_t n, string_code, after_ms, until_ms, silent_ms;
    const int64_t *slots, *time_ms, *birth_ms, *cell;
    const uint8_t *type, *type_up, *has_samples;
    const int64_t *birth;
    int64_t *last_time, *last;
    uint32_t *count, *offset;
    int64_t *row_last;
};

/* Number of samples stored; the next one is more than the next sample of its series, or in the chunk of one that is. */
int64_t add_plain(const struct plain_run *run) {
    const struct plain_run r = *run;
    for (int64_t from = 0; from < r.n; from += CHUNK) {
        const int64_t to = from + CHUNK < r.n ? from + CHUNK : r.n;
        int64_t missing = 0;
        for (int64_t i = from; i < to; i++)
            missing |= r.slots[i];
        if (missing < 0)
            return from;
        int other = 0;
        for (int64_t i = from; i < to; i++) {
            const int64_t slot = r.slots[i], time = r.time_ms[i], before = r.last_time[slot];
            const uint8_t up = r.type_up[slot];
            other |= (up == 0) | (up != (uint8_t)(r.type[i] + 1)) | (r.has_samples[slot] == 0) | (r.count[slot] != 0);
            other |= (r.birth[slot] != r.birth_ms[i]) | (before >= time) | (before <= r.silent_ms);
            other |= (time <= r.after_ms) | (time > r.until_ms) | (r.type[i] == r.string_code);
        }
        if (other)
            return from;
        for (int64_t i = from; i < to; i++) {
            const int64_t slot = r.slots[i], time = r.time_ms[i], cell = r.cell[i];
            r.last_time[slot] = time;
            r.last[slot] = cell;
            r.count[slot] = 1;
            r.offset[slot] = (uint32_t)(time - r.after_ms);
            r.row_last[slot] = cell;
        }
    }
    return r.n;
}

struct block {
    uint32_t *count, *offset;
    int64_t *last, *least, *most, *sum;
};

/* Four cells at a time; comparisons give masks. Loads and stores need the alignment of one cell only. */
typedef int64_t ints __attribute__((vector_size(32)));
typedef double reals __attribute__((vector_size(32)));
typedef uint32_t counts __attribute__((vector_size(16)));
typedef uint8_t codes __attribute__((vector_size(4)));

#define LOAD(kind, from) ({ kind value_; memcpy(&value_, from, sizeof value_); value_; })
#define STORE(to, value) ({ __typeof__(value) value_ = value; memcpy(to, &value_, sizeof value_); })
#define WIDEN(value) __builtin_convertvector(value, ints)
#define NARROW(value) __builtin_convertvector(value, counts)
#define CHOOSE(mask, a, b) (((mask) & (a)) | (~(mask) & (b)))
#define ORDER(cells) ((cells) ^ (((cells) >> 63) & INT64_MAX))

static inline __attribute__((always_inline)) void
absorb_four(int64_t i, uint32_t later_ms, const uint8_t *type, uint8_t double_code, const struct block *a,
            const struct block *b, int mine, int theirs) {
    const ints was = WIDEN(LOAD(counts, a->count + i)), is = WIDEN(LOAD(counts, b->count + i));
    const ints real = WIDEN(LOAD(codes, type + i)) == double_code, held = was != 0, here = is != 0, both = held & here;
    const ints x = LOAD(ints, a->last + i), y = LOAD(ints, b->last + i);
    ints p = x, q = y, one = was == 1, other = is == 1;
#define FOLD(column, whole, exact) \
    p = mine ? CHOOSE(one, x, LOAD(ints, a->column + i)) : x; \
    q = theirs ? CHOOSE(other, y, LOAD(ints, b->column + i)) : y; \
    STORE(a->column + i, CHOOSE(both, CHOOSE(real, exact, whole), CHOOSE(here, q, p)))
    FOLD(least, CHOOSE(p < q, p, q), CHOOSE(((reals)p < (reals)q) | ((reals)p != (reals)p), p, q));
    FOLD(most, CHOOSE(p > q, p, q), CHOOSE(((reals)p > (reals)q) | ((reals)p != (reals)p), p, q));
    FOLD(sum, p + q, (ints)((reals)p + (reals)q));
    const ints at = WIDEN(LOAD(counts, b->offset + i)) + later_ms, before = WIDEN(LOAD(counts, a->offset + i));
    const ints greater = CHOOSE(real, ORDER(y) > ORDER(x), y > x);
    const ints newer = here & (~held | (at > before) | ((at == before) & greater));
    STORE(a->last + i, CHOOSE(newer, y, x));
    STORE(a->offset + i, NARROW(CHOOSE(newer, at, before)));
    STORE(a->count + i, NARROW(was + is));
}

static inline __attribute__((always_inline)) void
absorb_all(int64_t n, uint32_t later_ms, const uint8_t *type, uint8_t double_code, const struct block *a,
           const struct block *b, int mine, int theirs) {
    int64_t i = 0;
    for (; i + 4 <= n; i += 4)
        absorb_four(i, later_ms, type, double_code, a, b, mine, theirs);
    if (i == n)
        return;
    struct { uint32_t count[4], offset[4]; int64_t last[4], least[4], most[4], sum[4]; } x = {0}, y = {0};
    const struct block to = {x.count, x.offset, x.last, x.least, x.most, x.sum};
    const struct block from = {y.count, y.offset, y.last, y.least, y.most, y.sum};
    uint8_t kind[4] = {0};
    const size_t rest = (size_t)(n - i);
    memcpy(kind, type + i, rest);
#define COPY(to, at, from, of) \
    memcpy((to)->count + at, (from)->count + of, rest * 4); memcpy((to)->offset + at, (from)->offset + of, rest * 4); \
    memcpy((to)->last + at, (from)->last + of, rest * 8); memcpy((to)->least + at, (from)->least + of, rest * 8); \
    memcpy((to)->most + at, (from)->most + of, rest * 8); memcpy((to)->sum + at, (from)->sum + of, rest * 8)
    COPY(&to, 0, a, i);
    COPY(&from, 0, b, i);
    absorb_four(0, later_ms, kind, double_code, &to, &from, mine, theirs);
    COPY(a, i, &to, 0);
}

/* 1 after `b` was added to `a`; 0, with nothing added, if two strings were sampled at one time. `mine`, `theirs`: folded
   statistics of `a` or `b` were written. */
HOT int32_t absorb(int64_t n, uint32_t later_ms, const uint8_t *type, uint8_t double_code, uint8_t string_code,
                   const struct block *a, const struct block *b, int32_t mine, int32_t theirs) {
    for (int64_t i = 0; i < n; i++)
        if (type[i] == string_code && a->count[i] && b->count[i] && b->offset[i] + later_ms == a->offset[i])
            return 0;
    if (mine && theirs)
        absorb_all(n, later_ms, type, double_code, a, b, 1, 1);
    else if (mine)
        absorb_all(n, later_ms, type, double_code, a, b, 1, 0);
    else
        absorb_all(n, later_ms, type, double_code, a, b, 0, theirs);
    return 1;
}

/* Words that packed columns hold: zigzag of `last`, and differences of `least`, `most` and `sum` to their predictions;
   0 for empty cells. */
HOT void differences(int64_t n, const uint8_t *is_double, const struct block *block, int64_t *restrict words[4]) {
    const struct block b = *block;
    int64_t *restrict last = words[0], *restrict least = words[1], *restrict most = words[2], *restrict sum = words[3];
    for (int64_t i = 0; i + 4 <= n; i += 4) {
        const ints real = WIDEN(LOAD(codes, is_double + i)) != 0, count = WIDEN(LOAD(counts, b.count + i));
        const ints x = LOAD(ints, b.last + i) & (count != 0), single = count <= 1, below = LOAD(ints, b.least + i);
        const ints scaled = (ints)(__builtin_convertvector(LOAD(counts, b.count + i), reals) * (reals)x);
        const ints above = LOAD(ints, b.most + i), total = LOAD(ints, b.sum + i), rest = total - x * count;
        STORE(last + i, CHOOSE(real, x, (x << 1) ^ (x >> 63)));
        STORE(least + i, CHOOSE(real, below ^ x, x - below) & ~single);
        STORE(most + i, CHOOSE(real, above ^ x, above - x) & ~single);
        STORE(sum + i, CHOOSE(real, total ^ scaled, (rest << 1) ^ (rest >> 63)) & ~single);
    }
}

/* Greatest absolute value of the series that are in one of `classes` (all without `class_of`) and present; NaN if one of them is NaN. */
HOT double largest(int64_t n, const double *values, const int64_t *class_of, int64_t classes, const uint8_t *present) {
    reals most = {0};
    ints odd = {0};
    int64_t i = 0;
    for (; i + 4 <= n; i += 4) {
        ints mine = {-1, -1, -1, -1};
        if (class_of)
            mine = LOAD(ints, class_of + i) < classes;
        if (present)
            mine &= WIDEN(LOAD(codes, present + i)) != 0;
        const ints size = LOAD(ints, values + i) & INT64_MAX & mine;
        most = (reals)CHOOSE((reals)size > most, size, (ints)most);
        odd |= (reals)size != (reals)size;
    }
    double found = 0.0;
    for (int k = 0; k < 4; k++)
        found = odd[k] ? NAN : most[k] > found ? most[k] : found;
    for (; i < n; i++)
        if ((!class_of || class_of[i] < classes) && (!present || present[i]))
            found = fabs(values[i]) > found || values[i] != values[i] ? fabs(values[i]) : found;
    return found;
}

/* Adds to each class the values of its series, split by sigma, in the order of the series; absent ones count as 0. */
void sum_classes(int64_t n, const double *values, const int64_t *class_of, const uint8_t *present, double sigma,
                 double *high, double *low) {
    int64_t before = n ? class_of[0] : 0;
    double upper = n ? high[before] : 0.0, rest = n ? low[before] : 0.0;
    for (int64_t i = 0; i < n; i++) {
        const int64_t class = class_of[i];
        const double value = present && !present[i] ? 0.0 : values[i], part = (value + sigma) - sigma;
        if (class != before) {
            high[before] = upper;
            low[before] = rest;
            upper = high[class];
            rest = low[class];
            before = class;
        }
        upper += part;
        rest += value - part;
    }
    if (n) {
        high[before] = upper;
        low[before] = rest;
    }
}

/* Least and greatest cell, and difference to the cell before, of the series in one of `classes`; differences are 0 without
   `before`, and wrap around beyond 64 bits. */
HOT void bounds(int64_t n, const int64_t *cells, const int64_t *before, const int64_t *class_of, int64_t classes,
                int64_t found[4]) {
    int64_t least = INT64_MAX, most = INT64_MIN, down = INT64_MAX, up = INT64_MIN;
    for (int64_t i = 0; i < n; i++) {
        const int64_t x = cells[i], step = before ? (int64_t)((uint64_t)x - (uint64_t)before[i]) : 0;
        const int mine = class_of[i] < classes;
        least = mine & (x < least) ? x : least;
        most = mine & (x > most) ? x : most;
        down = mine & (step < down) ? step : down;
        up = mine & (step > up) ? step : up;
    }
    found[0] = least, found[1] = most, found[2] = down, found[3] = up;
}

/* Adds to each class the cells of its series, modulo 2^64. */
void sum_integers(int64_t n, const uint64_t *cells, const int64_t *class_of, uint64_t *sums) {
    int64_t before = n ? class_of[0] : 0;
    uint64_t sum = n ? sums[before] : 0;
    for (int64_t i = 0; i < n; i++) {
        const int64_t class = class_of[i];
        if (class != before) {
            sums[before] = sum;
            sum = sums[class];
            before = class;
        }
        sum += cells[i];
    }
    if (n)
        sums[before] = sum;
}

struct rollups {
    int64_t n, start_ms, step_ms, columns, width;
    const int64_t *series, *end, *birth, *first, *last_time, *count, *last, *least, *most, *sum;
    const uint8_t *type;
};

/* Some runs of a block of rows, which are of one series, start time and type each. */
struct rollup_block {
    int64_t n, start_ms, step_ms, columns, width, after_ms, until_ms, base_ms;
    const int64_t *run, *series; /* of each of n runs: its number in the block, its series */
    const int64_t *begin, *birth; /* of each run of the block; `begin` has an end, too */
    const uint8_t *type;
    const struct packed *rows;
    const int64_t *least, *most, *sum; /* of each row; 0: not there */
    int64_t merged;                    /* rows that were merged */
};

/* A row of a block: end of its bucket in seconds since the base of the block, times of the first and of the last sample
   in milliseconds before this end. */
struct packed {
    uint32_t end, first, last, count;
    int64_t cell;
};

/* Columns of a file, times in microseconds, and what they are packed into. */
struct packing {
    int64_t n, base;
    const int32_t *source;
    const int64_t *series, *end, *birth, *first, *last_time, *count, *cell;
    const uint8_t *type;
    struct packed *rows;
    int64_t *run_source, *run_series, *run_birth, *begin;
    uint8_t *run_type;
};

/* A row with its times in milliseconds. */
struct rollup {
    int64_t series, end_ms, birth_ms, first_ms, last_time, last, count, least, most, sum;
    uint8_t type;
};

struct matrix {
    int64_t *count, *last, *last_time, *least, *most, *sum; /* 0: not wanted */
};

struct lives {
    uint8_t *type;
    int64_t *newest;
    const int64_t *place;
    uint8_t *begun;
    int64_t *birth_ms, *first_ms, *last_ms, *last, *others, *ended;
};

/* Cells of doubles as integers of the same order. */
static inline int64_t ranked(int64_t cell, int real) { return real ? ORDER(cell) : cell; }

static inline double as_real(int64_t cell) {
    double value;
    memcpy(&value, &cell, sizeof value);
    return value;
}

static inline int64_t as_cell(double value) {
    int64_t cell;
    memcpy(&cell, &value, sizeof cell);
    return cell;
}

/* 1 if the sample at `time` replaces the one at `held_time`: it is later, or greater at the same time. */
static inline int replaces(int64_t time, int64_t cell, int64_t held_time, int64_t held, int real) {
    return time > held_time || (time == held_time && ranked(cell, real) > ranked(held, real));
}

/* Milliseconds, rounded down. */
static inline int64_t to_ms(int64_t time) { return time / 1000 - (time % 1000 < 0); }

static inline int64_t cell_of(const int64_t *column, int64_t i) { return column ? column[i] : 0; }

static inline struct rollup row_at(const struct rollups *r, int64_t i) {
    const struct rollup row = {
        r->series[i], r->end[i],   r->birth[i], r->first[i], r->last_time[i], r->last[i],
        r->count[i],  r->least[i], r->most[i],  r->sum[i],   r->type[i],
    };
    return row;
}

static inline void fold_bucket(const struct rollup *row, const struct matrix *m, int64_t at, int real) {
    const int known = m->count[at] != 0;
    m->count[at] += row->count;
    const int64_t held = m->last ? m->last[at] : row->last;
    if (m->last_time && (!known || replaces(row->last_time, row->last, m->last_time[at], held, real))) {
        m->last_time[at] = row->last_time;
        if (m->last)
            m->last[at] = row->last;
    }
    if (m->least) {
        const int64_t a = m->least[at], b = row->least;
        const double x = as_real(a), y = as_real(b);
        m->least[at] = known && (real ? x < y || x != x : a < b) ? a : b;
    }
    if (m->most) {
        const int64_t a = m->most[at], b = row->most;
        const double x = as_real(a), y = as_real(b);
        m->most[at] = known && (real ? x > y || x != x : a > b) ? a : b;
    }
    if (m->sum) {
        const int64_t a = m->sum[at], b = row->sum;
        m->sum[at] = !known ? b : real ? as_cell(as_real(a) + as_real(b)) : (int64_t)((uint64_t)a + (uint64_t)b);
    }
}

static inline void extend(int64_t *first_ms, int64_t *last_ms, int64_t *last, const struct rollup *row, int real) {
    if (row->first_ms < *first_ms)
        *first_ms = row->first_ms;
    if (replaces(row->last_time, row->last, *last_ms, *last, real)) {
        *last_ms = row->last_time;
        *last = row->last;
    }
}

/* Enters an incarnation, or a row of one; `spilled`: those in `others`. */
static inline int64_t enter(const struct lives *l, const struct rollup *row, int64_t spilled, int real) {
    const int64_t series = row->series;
    int64_t *other = l->others + (spilled ? 5 * spilled - 5 : 0);
    if (row->last_time > l->newest[series])
        l->newest[series] = row->last_time;
    if (!l->begun[series]) {
        l->begun[series] = 1;
        l->birth_ms[series] = row->birth_ms;
        l->first_ms[series] = row->first_ms;
        l->last_ms[series] = row->last_time;
        l->last[series] = row->last;
    } else if (l->birth_ms[series] == row->birth_ms) {
        extend(l->first_ms + series, l->last_ms + series, l->last + series, row, real);
    } else if (spilled && other[0] == series && other[1] == row->birth_ms) {
        extend(other + 2, other + 3, other + 4, row, real);
    } else {
        other = l->others + 5 * spilled;
        other[0] = series;
        other[1] = row->birth_ms;
        other[2] = row->first_ms;
        other[3] = row->last_time;
        other[4] = row->last;
        return spilled + 1;
    }
    return spilled;
}

/* Number of incarnations in `others`, five words each; -1 if a series has two types: then only types were entered. */
int64_t add_rollups(const struct rollups *rows, const struct matrix *matrix, const struct lives *lives,
                    uint8_t double_code, uint8_t no_type) {
    const struct rollups r = *rows;
    const struct matrix m = *matrix;
    const struct lives l = *lives;
    for (int64_t i = 0; i < r.n; i++) {
        uint8_t *held = l.type + r.series[i];
        if (*held == no_type)
            *held = r.type[i];
        if (*held != r.type[i])
            return -1;
    }
    int64_t spilled = 0;
    for (int64_t i = 0; i < r.n; i++) {
        const struct rollup row = row_at(&r, i);
        const int64_t after = row.end_ms - r.start_ms - 1, column = after < 0 ? -1 : after / r.step_ms;
        const int real = row.type == double_code;
        if (column >= 0 && column < r.columns)
            fold_bucket(&row, &m, column * r.width + l.place[row.series], real);
        spilled = enter(&l, &row, spilled, real);
    }
    return spilled;
}

/* Number of runs; -1 if a time or count is beyond what a packed row holds. */
int64_t pack_rollups(const struct packing *packing) {
    const struct packing p = *packing;
    int64_t runs = 0;
    if (p.base % 1000)
        return -1;
    for (int64_t i = 0; i < p.n; i++) { /* the end is a whole millisecond: times before it are rounded up */
        const uint64_t after = (uint64_t)p.end[i] - (uint64_t)p.base, end = after / 1000000;
        const uint64_t first = ((uint64_t)p.end[i] - (uint64_t)p.first[i] + 999) / 1000;
        const uint64_t last = ((uint64_t)p.end[i] - (uint64_t)p.last_time[i] + 999) / 1000, count = (uint64_t)p.count[i];
        if (end * 1000000 != after || (end | first | last | count) > UINT32_MAX)
            return -1;
        const struct packed row = {(uint32_t)end, (uint32_t)first, (uint32_t)last, (uint32_t)count, p.cell[i]};
        p.rows[i] = row;
        if (i && p.series[i] == p.series[i - 1] && p.source[i] == p.source[i - 1] && p.birth[i] == p.birth[i - 1] &&
            p.type[i] == p.type[i - 1])
            continue;
        p.run_source[runs] = p.source[i];
        p.run_series[runs] = p.series[i];
        p.run_birth[runs] = to_ms(p.birth[i]);
        p.run_type[runs] = p.type[i];
        p.begin[runs++] = i;
    }
    return runs;
}

static inline int64_t end_of(const struct rollup_block *b, int64_t i) { return b->base_ms + 1000 * (int64_t)b->rows[i].end; }

static inline int is_wanted(const struct rollup_block *b, int64_t end_ms) { return end_ms > b->after_ms && end_ms <= b->until_ms; }

/* 1 if each series with wanted rows has the type of these, which is not that of texts: types were entered. */
int32_t enter_types(const struct rollup_block *b, uint8_t *types, uint8_t string_code, uint8_t ended_code, uint8_t no_type) {
    for (int64_t k = 0; k < b->n; k++) {
        const uint8_t type = b->type[b->run[k]];
        int64_t i = b->begin[b->run[k]];
        const int64_t end = b->begin[b->run[k] + 1];
        while (i < end && !is_wanted(b, end_of(b, i)))
            i++;
        if (i == end || type == ended_code)
            continue;
        uint8_t *held = types + b->series[k];
        if (type == string_code || (*held != no_type && *held != type))
            return 0;
        *held = type;
    }
    return 1;
}

/* Merges the rows of runs whose end is in (after, until], and sets `merged`; their types are entered. Number of incarnations in
   `others`. */
int64_t add_block(struct rollup_block *block, const struct matrix *matrix, const struct lives *lives, uint8_t double_code,
                  uint8_t ended_code) {
    const struct rollup_block b = *block;
    const struct matrix m = *matrix;
    const struct lives l = *lives;
    int64_t spilled = 0, merged = 0;
    for (int64_t k = 0; k < b.n; k++) {
        const int64_t run = b.run[k], series = b.series[k], place = l.place[series];
        const int real = b.type[run] == double_code, over = b.type[run] == ended_code;
        struct rollup life = {0};
        int64_t found = 0, column = 0, right_ms = INT64_MIN; /* end of the column */
        for (int64_t i = b.begin[run]; i < b.begin[run + 1]; i++) {
            const struct packed *packed = b.rows + i;
            const int64_t end_ms = end_of(&b, i);
            if (!is_wanted(&b, end_ms))
                continue;
            const struct rollup row = {
                series,         end_ms,        b.birth[run],           end_ms - packed->first, end_ms - packed->last,
                packed->cell,   packed->count, cell_of(b.least, i),    cell_of(b.most, i),     cell_of(b.sum, i),
                b.type[run],
            };
            if (over) {
                if (row.last_time > l.ended[series])
                    l.ended[series] = row.last_time;
                continue;
            }
            if (end_ms > right_ms || end_ms <= right_ms - b.step_ms) { /* mostly the next column */
                column = end_ms == right_ms + b.step_ms        ? column + 1
                         : end_ms > b.start_ms                 ? (end_ms - b.start_ms - 1) / b.step_ms
                                                               : -1;
                right_ms = b.start_ms + (column + 1) * b.step_ms;
            }
            if (column >= 0 && column < b.columns)
                fold_bucket(&row, &m, column * b.width + place, real);
            if (!found++)
                life = row;
            else
                extend(&life.first_ms, &life.last_time, &life.last, &row, real);
        }
        if (found)
            spilled = enter(&l, &life, spilled, real);
        merged += found;
    }
    block->merged = merged;
    return spilled;
}

/* 1 if no row is less than the one before it, by (source, series, time). */
int32_t is_ordered(int64_t n, const int64_t *source, const int64_t *series, const int64_t *time) {
    for (int64_t i = 1; i < n; i++) {
        if (source[i] == source[i - 1] && series[i] == series[i - 1] ? time[i] < time[i - 1]
            : source[i] != source[i - 1]                             ? source[i] < source[i - 1]
                                                                     : series[i] < series[i - 1])
            return 0;
    }
    return 1;
}

static inline uint64_t mixed(uint64_t word) {
    word ^= word >> 32;
    word *= 0xd6e8feb86659fd93ull;
    word ^= word >> 29;
    word *= 0xa0761d6478bd642full;
    return word ^ word >> 32;
}

/* Hashes of n rows: the bits of `first` plus the sum of words x factors, modulo 2^64, mixed. */
void hash_rows(int64_t n, int64_t columns, const uint64_t *const *words, const uint64_t *factors, uint64_t first,
               uint64_t *out) {
    for (int64_t start = 0; start < n; start += CHUNK) {
        const int64_t end = start + CHUNK < n ? start + CHUNK : n;
        for (int64_t i = start; i < end; i++)
            out[i] = first;
        for (int64_t column = 0; column < columns; column++) {
            const uint64_t *word = words[column], factor = factors[column];
            for (int64_t i = start; i < end; i++)
                out[i] += word[i] * factor;
        }
        for (int64_t i = start; i < end; i++)
            out[i] = mixed(out[i]);
    }
}

struct number {
    double real;
    int64_t whole;
    int is_whole;
};

/* Adds the digits from text[at] on to *value, modulo 2^64; returns the place after the last one. Reads four at once. */
static inline int64_t read_digits(int64_t n, const uint8_t *text, int64_t at, uint64_t *value) {
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    for (uint32_t four; n - at >= 4; at += 4) {
        memcpy(&four, text + at, 4);
        const uint32_t digits = four ^ 0x30303030u; /* 0 to 9 in each byte, if all are digits */
        if ((digits | (digits + 0x06060606u)) & 0xf0f0f0f0u)
            break;
        const uint32_t pairs = digits * 10 + (digits >> 8); /* bytes 0 and 2: two digits each */
        *value = *value * 10000 + (pairs & 0xff) * 100 + (pairs >> 16 & 0xff);
    }
#endif
    for (; at < n && (uint8_t)(text[at] - '0') <= 9; at++)
        *value = *value * 10 + (uint8_t)(text[at] - '0');
    return at;
}

/* Place after a number of JSON at text[at]; -1 if there is none, or one that two doubles do not give exactly: more than
   53 bits, or more than 22 decimal places. */
static inline int64_t read_number(int64_t n, const uint8_t *text, int64_t at, struct number *found) {
    static const double tens[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                  1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    const int negative = at < n && text[at] == '-';
    const int64_t begin = at + negative;
    uint64_t digits = 0, power = 0;
    int64_t places = 0;
    at = read_digits(n, text, begin, &digits);
    if (at == begin || (text[begin] == '0' && at > begin + 1))
        return -1;
    const int64_t whole_end = at;
    if (at < n && text[at] == '.') {
        at = read_digits(n, text, at + 1, &digits);
        places = at - whole_end - 1;
        if (!places)
            return -1;
    }
    if (at - begin > 19 || digits > (1ull << 53))
        return -1;
    if (at < n && (text[at] | 32) == 'e') {
        const int below = at + 1 < n && text[at + 1] == '-';
        const int64_t from = at + 1 + (below || (at + 1 < n && text[at + 1] == '+'));
        at = read_digits(n, text, from, &power);
        if (at == from || at > from + 3)
            return -1;
        places += below ? (int64_t)power : -(int64_t)power;
    }
    if (places < -22 || places > 22)
        return -1;
    const double size = places < 0 ? (double)digits * tens[-places] : (double)digits / tens[places];
    found->is_whole = at == whole_end;
    found->whole = negative ? -(int64_t)digits : (int64_t)digits;
    found->real = !negative ? size : found->is_whole ? 0.0 - size : -size; /* -0 is a whole number */
    return at;
}

/* Numbers of an array of JSON after its opening bracket, null as NaN, without blanks: place after the closing bracket, -1
   if the array is another one, or longer than `room`. One of `reals` and `wholes` is given. */
int64_t json_numbers(int64_t n, const uint8_t *text, int64_t at, int64_t room, double *reals, int64_t *wholes,
                     int64_t *count) {
    struct number found;
    *count = 0;
    if (at < n && text[at] == ']')
        return at + 1;
    while (at < n) {
        if (reals && n - at >= 4 && !memcmp(text + at, "null", 4)) {
            at += 4;
            found.real = NAN;
        } else if ((at = read_number(n, text, at, &found)) < 0 || (wholes && !found.is_whole)) {
            return -1;
        }
        if (*count == room)
            return -1;
        if (reals)
            reals[(*count)++] = found.real;
        else
            wholes[(*count)++] = found.whole;
        if (at >= n || (text[at] != ',' && text[at] != ']'))
            return -1;
        if (text[at++] == ']')
            return at;
    }
    return -1;
}

struct points {
    int64_t n, columns, size;
    const uint8_t *numbers, *here, *times, *heads, *tail;
    const int64_t *time_ends, *head_ends;
    int64_t tail_size;
};

static inline uint8_t *append(uint8_t *out, const uint8_t *text, int64_t size) {
    memcpy(out, text, (size_t)size);
    return out + size;
}

/* JSON of n series: head, points where `here`, tail. `numbers` has n x columns texts with commas between them, of `size`
   bytes; ".0" at the end of one is left out. Returns the bytes written to `out`. */
int64_t json_points(const struct points *of, uint8_t *out) {
    const uint8_t *number = of->numbers, *const end = number + of->size, *here = of->here;
    uint8_t *at = out;
    for (int64_t i = 0, head = 0; i < of->n; head = of->head_ends[i++]) {
        at = append(at, of->heads + head, of->head_ends[i] - head);
        int some = 0;
        for (int64_t j = 0, time = 0; j < of->columns; time = of->time_ends[j++]) {
            if (!*here++) {
                while (number < end && *number != ',')
                    number++;
            } else {
                if (some)
                    *at++ = ',';
                some = 1;
                at = append(at, of->times + time, of->time_ends[j] - time);
                while (number < end && *number != ',')
                    *at++ = *number++;
                if (at[-2] == '.' && at[-1] == '0')
                    at -= 2;
                *at++ = '"';
                *at++ = ']';
            }
            number += number < end;
        }
        at = append(at, of->tail, of->tail_size);
    }
    return at - out;
}
