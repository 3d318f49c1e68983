// How is a whole row of a table of best values computed at once?
//
// These loops are where an alignment spends its time; they are compiled for several kinds of processors.
#pragma once
#include <cstdint>
#include <cstring>

#include "tokens.hpp"

namespace modelkeeper {

// Each becomes the larger of both.
MODELKEEPER_WIDE inline void largest(int32_t *__restrict into, const int32_t *__restrict other, int32_t n) {
    for (int32_t j = 0; j < n; ++j) into[j] = into[j] > other[j] ? into[j] : other[j];
}

// From the row `best` of an element's predecessors to its own: keep what they had, or match with gain[j].
// Column 0, "before the first element", is left alone.
MODELKEEPER_WIDE inline void skip_or_match(int32_t *__restrict here, const int32_t *__restrict best,
                                           const int32_t *__restrict gain, int32_t n) {
    for (int32_t j = 1; j < n; ++j) {
        const int32_t match = best[j - 1] + gain[j];
        here[j] = best[j] > match ? best[j] : match;
    }
}

// into[j] = from[number[j]].
MODELKEEPER_WIDE inline void pick(int32_t *__restrict into, const int32_t *__restrict from,
                                  const int32_t *__restrict number, int32_t n) {
    for (int32_t j = 0; j < n; ++j) into[j] = from[number[j]];
}

// Each becomes the largest of `value` and all up to it; returns the last.
MODELKEEPER_WIDE inline int32_t running_largest(int32_t *values, int32_t n, int32_t value) {
    int32_t j = 0;
#if defined(__GNUC__) && !defined(__clang__)
    typedef int32_t Lanes __attribute__((vector_size(32)));
    if (n >= 8) {
        Lanes known = value - Lanes{};
        for (; j + 8 <= n; j += 8) {
            Lanes now, other;
            std::memcpy(&now, values + j, sizeof now);
            other = __builtin_shuffle(now, Lanes{0, 0, 1, 2, 3, 4, 5, 6}), now = now > other ? now : other;
            other = __builtin_shuffle(now, Lanes{0, 1, 0, 1, 2, 3, 4, 5}), now = now > other ? now : other;
            other = __builtin_shuffle(now, Lanes{0, 1, 2, 3, 0, 1, 2, 3}), now = now > other ? now : other;
            const Lanes last = __builtin_shuffle(now, Lanes{7, 7, 7, 7, 7, 7, 7, 7});
            now = now > known ? now : known;
            known = known > last ? known : last;
            std::memcpy(values + j, &now, sizeof now);
        }
        value = known[0];
    }
#endif
    for (; j < n; ++j) values[j] = value = value > values[j] ? value : values[j];
    return value;
}

}  // namespace modelkeeper
