// Which nodes of a labelled DAG play the same part in it?
//
// A colour is a hash of a node's label and of everything before and behind it. One forward and one
// backward sweep in topological order carry it through the whole graph; sweeps repeat until they
// part no more nodes. What stays together may still differ (two diamonds and one crossed octagon
// look alike from every node), so each tied node is once marked and the graph swept again: its
// colour takes in what the whole graph looks like from there. Each stage stops at `budget` edge visits:
// a fence (a -> c <- b -> d <- ...) passes news on by one picket a sweep. Where it stops depends on the
// structure alone.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

namespace modelkeeper {

struct Dag {
    size_t n;
    const uint64_t *label;
    const int32_t *offset;  // predecessors of v: source[offset[v] .. offset[v + 1]]
    const int32_t *source;
    const uint64_t *edge;  // one label for each predecessor
};

inline uint64_t mix(uint64_t a, uint64_t b) {
    uint64_t x = (a ^ 0x9e3779b97f4a7c15ull) * 0xbf58476d1ce4e5b9ull + (b ^ (b >> 29)) * 0x94d049bb133111ebull;
    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93ull;
    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93ull;
    return x ^ (x >> 32);
}

class Refiner {
  public:
    explicit Refiner(const Dag &dag) : dag_(dag), forward_(dag.n), backward_(dag.n), sorted_(dag.n) {}

    // Sweep until the number of colours stops growing, or the next sweep would exceed `budget` edge visits.
    void refine(std::vector<uint64_t> &colour, int64_t budget) {
        size_t classes = count(colour);
        for (;;) {
            sweep(colour);
            budget -= visits();
            const size_t now = count(colour);
            if (now <= classes || budget < visits()) return;
            classes = now;
        }
    }

    int64_t visits() const { return 2 * (int64_t(dag_.n) + dag_.offset[dag_.n]); }  // of one sweep

    size_t count(const std::vector<uint64_t> &colour) {
        sorted_ = colour;
        std::sort(sorted_.begin(), sorted_.end());
        return size_t(std::unique(sorted_.begin(), sorted_.end()) - sorted_.begin());
    }

    uint64_t summary(const std::vector<uint64_t> &colour) {
        sorted_ = colour;
        std::sort(sorted_.begin(), sorted_.end());
        uint64_t hash = dag_.n;
        for (uint64_t c : sorted_) hash = mix(hash, c);
        return hash;
    }

  private:
    void sweep(std::vector<uint64_t> &colour) {
        std::fill(backward_.begin(), backward_.end(), 0);
        for (size_t v = 0; v < dag_.n; ++v) {
            uint64_t sum = 0;
            for (int32_t e = dag_.offset[v]; e < dag_.offset[v + 1]; ++e)
                sum += mix(forward_[size_t(dag_.source[e])], dag_.edge[e]);
            forward_[v] = mix(colour[v], sum);
        }
        for (size_t v = dag_.n; v-- > 0;) {  // backward_[v] holds the sum over consumers until v is reached
            backward_[v] = mix(colour[v] + 1, backward_[v]);
            for (int32_t e = dag_.offset[v]; e < dag_.offset[v + 1]; ++e)
                backward_[size_t(dag_.source[e])] += mix(backward_[v], dag_.edge[e]);
        }
        for (size_t v = 0; v < dag_.n; ++v) colour[v] = mix(forward_[v], backward_[v]);
    }

    const Dag &dag_;
    std::vector<uint64_t> forward_, backward_, sorted_;
};

inline void colours(const Dag &dag, int64_t budget, uint64_t *result) {
    Refiner refiner(dag);
    std::vector<uint64_t> colour(dag.label, dag.label + dag.n);
    refiner.refine(colour, budget);

    std::vector<uint64_t> sorted = colour;
    std::sort(sorted.begin(), sorted.end());
    auto tied = [&](uint64_t c) {
        auto range = std::equal_range(sorted.begin(), sorted.end(), c);
        return range.second - range.first > 1;
    };
    size_t ties = 0;
    for (uint64_t c : colour) ties += tied(c);
    std::copy(colour.begin(), colour.end(), result);
    if (ties == 0 || int64_t(ties) * 3 * refiner.visits() > budget) return;
    for (size_t v = 0; v < dag.n; ++v) {
        if (!tied(colour[v])) continue;
        std::vector<uint64_t> marked = colour;
        marked[v] = mix(marked[v], 1);
        refiner.refine(marked, budget / int64_t(ties));
        result[v] = mix(colour[v], refiner.summary(marked));
    }
}

}  // namespace modelkeeper
