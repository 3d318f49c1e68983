// How a prepared graph lies in memory: its form, a flat array of 16-bit numbers.
//
// Elements are the nodes of the graph in canonical order, plus virtual joins where branches end at
// no common node. An element that closes a region names it; a region is a fork, a closer and the
// branches between them, each a contiguous run of elements. Widths are not here: an element names a
// local token, and models that differ in width alone share one form.
#pragma once
#include <cstddef>
#include <cstdint>

namespace modelkeeper {

constexpr uint16_t NONE = 0xFFFF;   // no token, no region, or: before the first element
constexpr uint16_t ASIDE = 0xFFFE;  // label of a branch whose edges were set aside: it lends to such a branch only

struct Form {
    static constexpr size_t HEADER = 8;

    uint16_t elements, tokens, regions, branches, branch_classes, region_classes;
    uint32_t edges, steps;
    const uint16_t *token;        // of each element, or NONE for a virtual join
    const uint16_t *region;       // that each element closes, or NONE
    const uint16_t *step_offset;  // the elements a path may come from: step[step_offset[i] ..]
    const uint16_t *step;
    const uint16_t *fork;           // of each region: an element, or NONE
    const uint16_t *region_class;   // equal for regions of equal content
    const uint16_t *branch_offset;  // the branches of each region
    const uint16_t *low, *high;     // of each branch: its elements; low > high: a bare edge
    const uint16_t *branch_class, *branch_label;
    const uint16_t *edge_offset;  // the graph's own edges into each element
    const uint16_t *edge, *edge_label;

    static size_t words(const uint16_t *h) {
        const size_t elements = h[0], steps = h[2], regions = h[3], branches = h[4], edges = h[7];
        return HEADER + 4 * elements + 2 + steps + 3 * regions + 1 + 4 * branches + 2 * edges;
    }

    explicit Form(const uint16_t *h)
        : elements(h[0]),
          tokens(h[1]),
          regions(h[3]),
          branches(h[4]),
          branch_classes(h[5]),
          region_classes(h[6]),
          edges(h[7]),
          steps(h[2]) {
        const uint16_t *at = h + HEADER;
        auto take = [&at](size_t n) {
            const uint16_t *here = at;
            at += n;
            return here;
        };
        token = take(elements);
        region = take(elements);
        step_offset = take(size_t(elements) + 1);
        step = take(steps);
        fork = take(regions);
        region_class = take(regions);
        branch_offset = take(size_t(regions) + 1);
        low = take(branches);
        high = take(branches);
        branch_class = take(branches);
        branch_label = take(branches);
        edge_offset = take(size_t(elements) + 1);
        edge = take(edges);
        edge_label = take(edges);
    }
    // Is this a form? Asked once for bytes that come from outside; the kernel trusts its answer.
    static bool valid(const uint16_t *words, size_t size);
};

inline bool Form::valid(const uint16_t *h, size_t size) {
    if (size < HEADER || words(h) != size) return false;
    const Form f(h);
    auto rising = [](const uint16_t *offset, size_t n, size_t last) {
        if (offset[0] != 0 || offset[n] != last) return false;
        for (size_t i = 0; i < n; ++i)
            if (offset[i] > offset[i + 1]) return false;
        return true;
    };
    if (!rising(f.step_offset, f.elements, f.steps) || !rising(f.branch_offset, f.regions, f.branches) ||
        !rising(f.edge_offset, f.elements, f.edges))
        return false;
    for (size_t i = 0; i < f.elements; ++i) {
        if (f.token[i] != NONE && f.token[i] >= f.tokens) return false;
        if (f.region[i] != NONE && f.region[i] >= f.regions) return false;
        if (f.step_offset[i] == f.step_offset[i + 1]) return false;
        for (size_t k = f.step_offset[i]; k < f.step_offset[i + 1]; ++k)
            if (f.step[k] != NONE && f.step[k] >= i) return false;
        for (size_t k = f.edge_offset[i]; k < f.edge_offset[i + 1]; ++k)
            if (f.edge[k] >= f.elements) return false;
        if (f.region[i] == NONE) continue;
        const uint16_t r = f.region[i];
        if (f.region_class[r] >= f.region_classes || (f.fork[r] != NONE && f.fork[r] >= i)) return false;
        for (size_t b = f.branch_offset[r]; b < f.branch_offset[r + 1]; ++b) {
            if (f.branch_class[b] >= f.branch_classes) return false;
            if (f.low[b] <= f.high[b] && (f.high[b] >= i || (f.fork[r] != NONE && f.low[b] <= f.fork[r]))) return false;
        }
    }
    return true;
}

}  // namespace modelkeeper
