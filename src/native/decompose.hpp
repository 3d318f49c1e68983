// In which order, and with which regions, should a graph be aligned?
//
// A cut is a node that every path crosses. Between two cuts, the connected components are branches of
// one region, and each is decomposed in turn. A component without cuts is primitive (the cells of a NAS
// network, each fed by two others): there, what leads to one merge and nowhere else still becomes a
// region of that merge, and the rest is put in canonical order (post-order from the exits;
// predecessors by kind, shape, level, height, then by colour). Nothing depends on how nodes were
// numbered, as far as the budget for telling symmetric nodes apart reaches (parts.hpp).
#pragma once
#include <algorithm>
#include <map>
#include <optional>
#include <stdexcept>
#include <tuple>
#include <utility>
#include <vector>

#include "form.hpp"
#include "parts.hpp"

namespace modelkeeper {

class Decomposition : Parts {
  public:
    static constexpr int MAX_DEPTH = 64;  // regions nested deeper are put in plain order

    // Nodes between a fork and a merge. plan -1: a bare edge.
    struct Branch {
        int plan;
        uint64_t hash;
        size_t size;
        uint16_t label;
        int64_t level;
        uint64_t colour;
    };
    // linear: a path may cross all branches in turn.
    struct Region {
        std::vector<Branch> branches;
        uint64_t hash;
        bool linear;
    };
    // Branches, then the node that closes them; either may be absent (-1).
    struct Item {
        int region;
        int32_t node;
    };
    // In which order the nodes of a part are put.
    struct Plan {
        std::vector<Item> items;
        uint64_t hash = 0;
    };

    // The graph as in parts.hpp, and for each node its place among kinds and shapes.
    Decomposition(size_t n, const uint64_t *content, const int32_t *rank, const int32_t *offset, const int32_t *source,
                  const uint16_t *label)
        : Parts(n, content, offset, source, label), rank_(rank), level_(n, 0) {
        whole = plan(all(), 0);
    }

    std::vector<Plan> plans;
    std::vector<Region> regions;
    int whole;  // the plan of the whole graph

    using Parts::inputs;
    using Parts::size;

  private:
    // A region of these branches, and of a bare edge with label `direct`, if there is one.
    int region(const std::vector<Nodes> &components, std::optional<uint16_t> direct, int depth, bool linear) {
        Region made{{}, 0x5e91, linear};
        for (const Nodes &part : components) made.branches.push_back(branch(part, depth));
        if (direct) {
            const uint16_t label = std::min<uint16_t>(*direct, ASIDE - 1);
            made.branches.push_back({-1, mix(0xed9e, label), 0, label, 0, 0});
        }
        std::sort(made.branches.begin(), made.branches.end(), [](const Branch &a, const Branch &b) {
            return std::tuple(a.size, a.hash, a.level, a.colour) < std::tuple(b.size, b.hash, b.level, b.colour);
        });
        for (const Branch &branch : made.branches) made.hash = mix(made.hash, branch.hash);
        regions.push_back(std::move(made));
        return int(regions.size()) - 1;
    }

    Branch branch(const Nodes &part, int depth) {
        enter(part);
        uint16_t label = 0;  // the sum of the labels of all edges that leave it
        for (int32_t v : part)
            for (const Link &l : succs_[size_t(v)])
                if (place(l.first) < 0) label = uint16_t(label + l.second);
        leave(part);
        label = side_[size_t(part[0])] ? ASIDE : std::min<uint16_t>(label, ASIDE - 1);
        const int inner = plan(part, depth + 1);
        int64_t level = 0;  // branches of equal content may be fed from different places: the earlier one first
        uint64_t colour = 0;
        for (int32_t v : part) level += level_[size_t(v)], colour += mix(colour_[size_t(v)], 3);
        return {inner, mix(plans[size_t(inner)].hash, label), part.size(), label, level, colour};
    }

    int add(Plan &&made) {
        plans.push_back(std::move(made));
        return int(plans.size()) - 1;
    }

    // A part cut by cut, with a region wherever something lies between two of them.
    int plan(const Nodes &part, int depth) {
        if (depth >= MAX_DEPTH && part.size() > 1) return primitive(part, depth);
        enter(part);
        const std::vector<int32_t> cuts = find_cuts(part);
        const std::vector<uint64_t> signatures = signatures_of(part);
        leave(part);

        Plan made;
        made.hash = 0xc4a1;
        const int32_t size = int32_t(part.size());
        for (size_t c = 0; c <= cuts.size(); ++c) {
            const int32_t before = c ? cuts[c - 1] : -1, after = c < cuts.size() ? cuts[c] : size;
            int between = -1;
            if (after - before > 1) {
                const auto parts = components({part.begin() + before + 1, part.begin() + after});
                if (parts.size() == 1 && parts[0].size() == part.size()) return primitive(part, depth);
                between = region(parts, edge_over(part, before, after), depth, false);
                made.hash = mix(made.hash, regions[size_t(between)].hash);
            }
            const int32_t to = after < size ? part[size_t(after)] : -1;
            if (to >= 0) made.hash = mix(made.hash, signatures[size_t(after)]);
            if (between >= 0 || to >= 0) made.items.push_back({between, to});
        }
        return add(std::move(made));
    }

    // The nodes, by their place, that every path crosses: no edge leads from before them to behind them.
    std::vector<int32_t> find_cuts(const Nodes &part) const {
        const int32_t size = int32_t(part.size());
        int32_t far = -1;  // how far edges from before reach
        for (int32_t i = 0; i < size; ++i)
            if (begins(part[size_t(i)])) far = i;
        std::vector<int32_t> cuts;
        for (int32_t i = 0; i < size; ++i) {
            const int32_t v = part[size_t(i)];
            if (far <= i) cuts.push_back(i);
            if (ends(v)) far = size;
            for (const Link &l : succs_[size_t(v)]) far = std::max(far, place(l.first));
        }
        return cuts;
    }

    // The label of the edge that leads from one cut straight to the next, or from or to outside the part.
    std::optional<uint16_t> edge_over(const Nodes &part, int32_t before, int32_t after) {
        const bool first = before < 0, last = after == int32_t(part.size());
        if (!first && !last) {
            const Link *link = edge_to(part[size_t(before)], part[size_t(after)]);
            return link ? std::optional(link->second) : std::nullopt;
        }
        enter(part);
        const bool leads = last ? !first && ends(part[size_t(before)]) : begins(part[size_t(after)]);
        leave(part);
        return leads ? std::optional<uint16_t>(0) : std::nullopt;
    }

    std::vector<uint64_t> signatures_of(const Nodes &part) const {
        std::vector<uint64_t> signatures;
        for (int32_t v : part) signatures.push_back(signature(v));
        return signatures;
    }

    using Enclosed = std::map<int32_t, Nodes>;  // by the place of a merge: what leads to it and nowhere else

    // A part without cuts: what a merge encloses becomes its region, the rest is put in canonical order.
    int primitive(const Nodes &part, int depth) {
        const Enclosed closed = depth < MAX_DEPTH ? enclosed(part) : Enclosed{};
        const auto colour = distinct(part);
        for (size_t i = 0; i < part.size(); ++i) colour_[size_t(part[i])] = colour[i];
        enter(part);
        const std::vector<uint64_t> signatures = signatures_of(part);
        const OpenNodes open = open_nodes(part, closed);
        leave(part);
        Plan made;
        made.hash = 0x9411;
        std::vector<int32_t> position(part.size(), -1);
        for (const int32_t i : post_order(open)) {
            position[size_t(i)] = int32_t(made.items.size());
            int between = -1;
            if (const auto at = closed.find(i); at != closed.end()) {
                between = region(components(at->second), edge_past(part[size_t(i)], at->second), depth, true);
                made.hash = mix(made.hash, regions[size_t(between)].hash);
            }
            uint64_t sum = 0;
            for (int32_t q : open.before[size_t(i)]) sum += mix(uint64_t(position[size_t(q)]), 0x11);
            made.hash = mix(mix(made.hash, signatures[size_t(i)]), sum);
            made.items.push_back({between, part[size_t(i)]});
        }
        return add(std::move(made));
    }

    // The nodes of a part that no merge encloses, all by their places, in canonical order: from which others each
    // of them takes something, also by way of what it encloses; and where data leaves the part.
    struct OpenNodes {
        std::vector<std::vector<int32_t>> before;
        std::vector<int32_t> exits;
    };

    OpenNodes open_nodes(const Nodes &part, const Enclosed &closed) {
        const size_t size = part.size();
        const std::vector<int32_t> level = levels(part), height = heights(part);
        for (size_t i = 0; i < size; ++i) level_[size_t(part[i])] = level[i];
        auto key = [&](int32_t i) {
            const int32_t v = part[size_t(i)];
            return std::tuple(rank_[v], -level[size_t(i)], -height[size_t(i)], colour_[size_t(v)]);
        };
        auto earlier = [&](int32_t a, int32_t b) { return key(a) < key(b); };
        std::vector<char> hidden(size, 0);
        for (const auto &[closer, inner] : closed)
            for (int32_t v : inner) hidden[size_t(place(v))] = 1;

        OpenNodes open{std::vector<std::vector<int32_t>>(size), {}};
        for (size_t i = 0; i < size; ++i) {
            if (hidden[i]) continue;
            auto &before = open.before[i];
            auto add_sources = [&](int32_t v) {
                for (const Link &l : preds_[size_t(v)])
                    if (place(l.first) >= 0 && !hidden[size_t(place(l.first))]) before.push_back(place(l.first));
            };
            add_sources(part[i]);
            if (const auto at = closed.find(int32_t(i)); at != closed.end())
                std::for_each(at->second.begin(), at->second.end(), add_sources);
            std::sort(before.begin(), before.end(), earlier);
            before.erase(std::unique(before.begin(), before.end()), before.end());
            const auto &out = succs_[size_t(part[i])];
            if (std::none_of(out.begin(), out.end(), [this](const Link &l) { return place(l.first) >= 0; }))
                open.exits.push_back(int32_t(i));
        }
        std::sort(open.exits.begin(), open.exits.end(), earlier);
        return open;
    }

    // How many nodes of the part stand in a row before each, at most.
    std::vector<int32_t> levels(const Nodes &part) const {
        std::vector<int32_t> level(part.size(), 0);
        for (size_t i = 0; i < part.size(); ++i)
            for (const Link &l : preds_[size_t(part[i])])
                if (place(l.first) >= 0) level[i] = std::max(level[i], level[size_t(place(l.first))] + 1);
        return level;
    }

    // How many nodes of the part stand in a row behind each, at most.
    std::vector<int32_t> heights(const Nodes &part) const {
        std::vector<int32_t> height(part.size(), 0);
        for (size_t i = part.size(); i-- > 0;)
            for (const Link &l : succs_[size_t(part[i])])
                if (place(l.first) >= 0) height[i] = std::max(height[i], height[size_t(place(l.first))] + 1);
        return height;
    }

    // Each node behind all that it takes something from, beginning at the exits.
    static std::vector<int32_t> post_order(const OpenNodes &open) {
        std::vector<int32_t> order;
        std::vector<char> seen(open.before.size(), 0);
        std::vector<std::pair<int32_t, size_t>> stack;  // a node, and how many of those before it were visited
        for (int32_t exit : open.exits) {
            stack.push_back({exit, 0});
            seen[size_t(exit)] = 1;
            while (!stack.empty()) {
                auto &[v, next] = stack.back();
                const auto &before = open.before[size_t(v)];
                if (next == before.size()) {
                    order.push_back(v);
                    stack.pop_back();
                    continue;
                }
                const int32_t q = before[next++];
                if (!seen[size_t(q)]) seen[size_t(q)] = 1, stack.push_back({q, 0});
            }
        }
        return order;
    }

    // The label of what a merge takes from elsewhere than from what it encloses.
    std::optional<uint16_t> edge_past(int32_t merge, const Nodes &inner) const {
        std::optional<uint16_t> label;
        for (const Link &l : preds_[size_t(merge)])
            if (!std::binary_search(inner.begin(), inner.end(), l.first))
                label = uint16_t(label.value_or(0) + l.second);
        return label;
    }

    const int32_t *rank_;
    std::vector<int32_t> level_;
};

}  // namespace modelkeeper
