// Who goes with whom, for the largest sum?
//
// values[i * m + j] is what row i earns with column j; partner[i] becomes i's column, or -1. The best
// assignment is found by the Hungarian method, in time n^2 m; ties keep the given order.
#pragma once
#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "arena.hpp"

namespace modelkeeper {

inline void assign_best(const int32_t *values, int32_t n, int32_t m, std::vector<int32_t> &partner, Arena &arena) {
    partner.assign(size_t(n), -1);
    if (n == 1 && m == 1) {
        if (values[0] > 0) partner[0] = 0;
        return;
    }
    if (n == 2 && m == 2) {
        const bool crossed = values[1] + values[2] > values[0] + values[3];
        if (values[crossed ? 1 : 0] > 0) partner[0] = crossed;
        if (values[crossed ? 2 : 3] > 0) partner[1] = !crossed;
        return;
    }
    const bool turned = n > m;
    const int32_t rows = std::min(n, m), columns = std::max(n, m);
    auto value = [&](int32_t i, int32_t j) {
        return turned ? values[size_t(j) * size_t(m) + size_t(i)] : values[size_t(i) * size_t(m) + size_t(j)];
    };
    const size_t size = size_t(columns) + 1;
    int64_t *const u = arena.take<int64_t>(size), *const v = arena.take<int64_t>(size),
                   *const least = arena.take<int64_t>(size);
    int32_t *const holder = arena.take<int32_t>(size), *const way = arena.take<int32_t>(size);
    char *const used = arena.take<char>(size);
    std::fill_n(u, size, 0), std::fill_n(v, size, 0), std::fill_n(holder, size, 0), std::fill_n(way, size, 0);
    for (int32_t i = 1; i <= rows; ++i) {
        holder[0] = i;
        int32_t column = 0;
        std::fill_n(least, size, INT64_MAX), std::fill_n(used, size, 0);
        do {
            used[column] = 1;
            const int32_t at = holder[column];
            int32_t next = 0;
            int64_t delta = INT64_MAX;
            for (int32_t j = 1; j <= columns; ++j) {
                if (used[j]) continue;
                const int64_t cost = -int64_t(value(at - 1, j - 1)) - u[at] - v[j];
                if (cost < least[j]) least[j] = cost, way[j] = column;
                if (least[j] < delta) delta = least[j], next = j;
            }
            for (int32_t j = 0; j <= columns; ++j) {
                if (used[j])
                    u[holder[j]] += delta, v[j] -= delta;
                else if (least[j] != INT64_MAX)
                    least[j] -= delta;
            }
            column = next;
        } while (holder[column]);
        for (; column; column = way[column]) holder[column] = holder[way[column]];
    }
    for (int32_t j = 1; j <= columns; ++j) {
        if (!holder[j] || value(holder[j] - 1, j - 1) == 0) continue;
        if (turned)
            partner[size_t(j) - 1] = holder[j] - 1;
        else
            partner[size_t(holder[j]) - 1] = j - 1;
    }
}

// The same in a hurry, for very many: each in turn takes the best that is left.
inline void assign_in_order(const int32_t *values, int32_t n, int32_t m, std::vector<int32_t> &partner) {
    partner.assign(size_t(n), -1);
    std::vector<char> used(size_t(m), 0);
    for (int32_t i = 0; i < n; ++i) {
        int32_t best = -1, value = 0;
        for (int32_t j = 0; j < m; ++j) {
            const int32_t v = values[size_t(i) * size_t(m) + size_t(j)];
            if (!used[size_t(j)] && v > value) best = j, value = v;
        }
        if (best >= 0) used[size_t(best)] = 1, partner[size_t(i)] = best;
    }
}

}  // namespace modelkeeper
