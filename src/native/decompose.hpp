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
#include <numeric>
#include <stdexcept>
#include <tuple>
#include <utility>
#include <vector>

#include "form.hpp"
#include "parts.hpp"

namespace modelkeeper {

class Decomposition : Parts {
  public:
    static constexpr int MAX_DEPTH = 24;  // regions nested deeper are put in plain order

    // The graph as in parts.hpp, and for each node its place among kinds and shapes, and its token.
    Decomposition(size_t n, const uint64_t *content, const int32_t *rank, const int32_t *token, const int32_t *offset,
                  const int32_t *source, const uint16_t *label)
        : Parts(n, content, offset, source, label), rank_(rank), token_(token), level_(n, 0) {
        emit(plan(all(), 0), NONE);
    }

    std::vector<int32_t> nodes;   // of each element, or -1
    std::vector<int32_t> tokens;  // of each local token: the number it was given as

    std::vector<uint16_t> form() {
        std::map<int32_t, uint16_t> known;
        std::vector<uint16_t> token, edge_offset{0}, edge, edge_label;
        std::vector<uint16_t> element(static_cast<size_t>(n_));
        for (size_t i = 0; i < nodes.size(); ++i)
            if (nodes[i] >= 0) element[size_t(nodes[i])] = uint16_t(i);
        for (int32_t v : nodes) {
            if (v < 0) {
                token.push_back(NONE);
            } else {
                auto [at, fresh] = known.try_emplace(token_[v], uint16_t(tokens.size()));
                if (fresh) tokens.push_back(token_[v]);
                token.push_back(at->second);
                std::vector<std::pair<uint16_t, uint16_t>> in;
                for (const auto *links : {&preds_[size_t(v)], &aside_[size_t(v)]})
                    for (const auto &[q, label] : *links) in.push_back({element[size_t(q)], label});
                std::sort(in.begin(), in.end());
                for (const auto &[q, label] : in) edge.push_back(q), edge_label.push_back(label);
            }
            edge_offset.push_back(uint16_t(edge.size()));
        }
        std::map<uint64_t, uint16_t> branch_class, region_class;
        auto number = [](auto &classes, uint64_t hash) {
            return classes.try_emplace(hash, uint16_t(classes.size())).first->second;
        };
        std::vector<uint16_t> fork, kind, branch_offset{0}, low, high, sort, label;
        for (const Placed &region : placed_) {
            fork.push_back(region.fork);
            kind.push_back(number(region_class, region.hash));
            for (const Run &run : region.runs) {
                low.push_back(run.low);
                high.push_back(run.high);
                sort.push_back(number(branch_class, run.hash));
                label.push_back(run.label);
            }
            branch_offset.push_back(uint16_t(low.size()));
        }
        if (edge.size() >= NONE || steps_.size() >= NONE || nodes.size() >= NONE || low.size() >= NONE)
            throw std::length_error("the graph is too large to be aligned");
        std::vector<uint16_t> form{uint16_t(nodes.size()),        uint16_t(tokens.size()),
                                   uint16_t(steps_.size()),       uint16_t(fork.size()),
                                   uint16_t(low.size()),          uint16_t(branch_class.size()),
                                   uint16_t(region_class.size()), uint16_t(edge.size())};
        for (const auto *part : {&token, &closes_, &step_offset_, &steps_, &fork, &kind, &branch_offset, &low, &high,
                                 &sort, &label, &edge_offset, &edge, &edge_label})
            form.insert(form.end(), part->begin(), part->end());
        return form;
    }

  private:
    struct Branch {
        int plan;
        uint64_t hash;
        size_t size;
        uint16_t label;
        int64_t level;
        uint64_t colour;
    };  // plan -1: a bare edge
    struct Region {
        std::vector<Branch> branches;
        uint64_t hash;
        bool linear;
    };  // linear: a path may cross all branches in turn
    struct Item {
        int region;
        int32_t node;
    };  // branches, then the node that closes them; either may be absent
    struct Plan {
        std::vector<Item> items;
        uint64_t hash = 0;
    };
    struct Run {
        uint16_t low, high;
        uint64_t hash;
        uint16_t label;
    };
    struct Placed {
        uint16_t fork;
        uint64_t hash;
        std::vector<Run> runs;
    };

    int region(const std::vector<Nodes> &components, bool direct, uint16_t direct_label, int depth, bool linear) {
        Region found{{}, 0x5e91, linear};
        for (const Nodes &part : components) {
            enter(part);
            uint16_t label = 0;
            for (int32_t v : part)
                for (const Link &l : succs_[size_t(v)])
                    if (place(l.first) < 0) label = uint16_t(label + l.second);
            leave(part);
            label = side_[size_t(part[0])] ? ASIDE : std::min<uint16_t>(label, ASIDE - 1);
            const int inner = plan(part, depth + 1);
            int64_t level = 0;  // branches of equal content may be fed from different places: the earlier one first
            uint64_t colour = 0;
            for (int32_t v : part) level += level_[size_t(v)], colour += mix(colour_[size_t(v)], 3);
            found.branches.push_back(
                {inner, mix(plans_[size_t(inner)].hash, label), part.size(), label, level, colour});
        }
        direct_label = std::min<uint16_t>(direct_label, ASIDE - 1);
        if (direct) found.branches.push_back({-1, mix(0xed9e, direct_label), 0, direct_label, 0, 0});
        std::sort(found.branches.begin(), found.branches.end(), [](const Branch &a, const Branch &b) {
            return std::tuple(a.size, a.hash, a.level, a.colour) < std::tuple(b.size, b.hash, b.level, b.colour);
        });
        for (const Branch &branch : found.branches) found.hash = mix(found.hash, branch.hash);
        regions_.push_back(std::move(found));
        return int(regions_.size()) - 1;
    }

    int add(Plan &&made) {
        plans_.push_back(std::move(made));
        return int(plans_.size()) - 1;
    }

    int plan(const Nodes &part, int depth) {
        if (depth >= MAX_DEPTH && part.size() > 1) return primitive(part, depth);
        // A node is a cut if no edge leads from before it to behind it.
        enter(part);
        const int32_t size = int32_t(part.size());
        std::vector<int32_t> cuts;
        std::vector<uint64_t> signatures;
        std::vector<char> begin, end;
        int32_t far = -1;
        for (int32_t i = 0; i < size; ++i) {
            begin.push_back(begins(part[size_t(i)]));
            end.push_back(ends(part[size_t(i)]));
            signatures.push_back(signature(part[size_t(i)]));
            if (begin.back()) far = i;
        }
        for (int32_t i = 0; i < size; ++i) {
            if (far <= i) cuts.push_back(i);
            if (end[size_t(i)]) far = size;
            for (const Link &l : succs_[size_t(part[size_t(i)])]) far = std::max(far, place(l.first));
        }
        leave(part);

        Plan made;
        made.hash = 0xc4a1;
        for (size_t c = 0; c <= cuts.size(); ++c) {
            const int32_t before = c ? cuts[c - 1] : -1, after = c < cuts.size() ? cuts[c] : size;
            const int32_t from = before < 0 ? -1 : part[size_t(before)], to = after < size ? part[size_t(after)] : -1;
            int between = -1;
            if (after - before > 1) {
                const auto parts = components({part.begin() + before + 1, part.begin() + after});
                if (parts.size() == 1 && parts[0].size() == part.size()) return primitive(part, depth);
                bool direct = false;
                uint16_t label = 0;
                if (from >= 0 && to >= 0) {
                    if (const Link *link = edge_to(from, to)) direct = true, label = link->second;
                } else {
                    direct = to >= 0 ? begin[size_t(after)] : from >= 0 && end[size_t(before)];
                }
                between = region(parts, direct, label, depth, false);
                made.hash = mix(made.hash, regions_[size_t(between)].hash);
            }
            if (to >= 0) made.hash = mix(made.hash, signatures[size_t(after)]);
            if (between >= 0 || to >= 0) made.items.push_back({between, to});
        }
        return add(std::move(made));
    }

    int primitive(const Nodes &part, int depth) {
        const auto closed = depth < MAX_DEPTH ? enclosed(part) : std::map<int32_t, Nodes>{};
        const auto colour = distinct(part);
        for (size_t i = 0; i < part.size(); ++i) colour_[size_t(part[i])] = colour[i];
        enter(part);
        const size_t size = part.size();
        std::vector<int32_t> level(size, 0), height(size, 0), hidden(size, 0);
        std::vector<uint64_t> signatures(size);
        for (size_t i = 0; i < size; ++i) {
            signatures[i] = signature(part[i]);
            for (const Link &l : preds_[size_t(part[i])])
                if (place(l.first) >= 0) level[i] = std::max(level[i], level[size_t(place(l.first))] + 1);
        }
        for (size_t i = 0; i < size; ++i) level_[size_t(part[i])] = level[i];
        for (size_t i = size; i-- > 0;)
            for (const Link &l : succs_[size_t(part[i])])
                if (place(l.first) >= 0) height[i] = std::max(height[i], height[size_t(place(l.first))] + 1);
        for (const auto &[closer, inner] : closed)
            for (int32_t v : inner) hidden[size_t(place(v))] = 1;
        auto earlier = [&](int32_t a, int32_t b) {
            auto key = [&](int32_t i) {
                return std::tuple(rank_[part[size_t(i)]], -level[size_t(i)], -height[size_t(i)], colour[size_t(i)]);
            };
            return key(a) < key(b);
        };
        std::vector<std::vector<int32_t>> before(size);
        std::vector<int32_t> roots, order;
        for (size_t i = 0; i < size; ++i) {
            if (hidden[i]) continue;
            auto feeds = [&](int32_t v) {
                for (const Link &l : preds_[size_t(v)])
                    if (place(l.first) >= 0 && !hidden[size_t(place(l.first))]) before[i].push_back(place(l.first));
            };
            feeds(part[i]);
            const auto at = closed.find(int32_t(i));
            if (at != closed.end()) std::for_each(at->second.begin(), at->second.end(), feeds);
            std::sort(before[i].begin(), before[i].end(), earlier);
            before[i].erase(std::unique(before[i].begin(), before[i].end()), before[i].end());
            const auto &out = succs_[size_t(part[i])];
            if (std::none_of(out.begin(), out.end(), [this](const Link &l) { return place(l.first) >= 0; }))
                roots.push_back(int32_t(i));
        }
        leave(part);
        std::sort(roots.begin(), roots.end(), earlier);
        std::vector<char> seen(size, 0);
        std::vector<std::pair<int32_t, size_t>> stack;
        for (int32_t root : roots) {
            stack.push_back({root, 0});
            seen[size_t(root)] = 1;
            while (!stack.empty()) {
                auto &[v, next] = stack.back();
                if (next == before[size_t(v)].size()) {
                    order.push_back(v);
                    stack.pop_back();
                    continue;
                }
                const int32_t q = before[size_t(v)][next++];
                if (!seen[size_t(q)]) seen[size_t(q)] = 1, stack.push_back({q, 0});
            }
        }
        Plan made;
        made.hash = 0x9411;
        std::vector<int32_t> position(size, -1);
        for (size_t k = 0; k < order.size(); ++k) {
            const int32_t i = order[k];
            position[size_t(i)] = int32_t(k);
            int between = -1;
            const auto at = closed.find(i);
            if (at != closed.end()) {
                bool direct = false;
                uint16_t label = 0;
                for (const Link &l : preds_[size_t(part[size_t(i)])])
                    if (!std::binary_search(at->second.begin(), at->second.end(), l.first))
                        direct = true, label = uint16_t(label + l.second);
                between = region(components(at->second), direct, label, depth, true);
                made.hash = mix(made.hash, regions_[size_t(between)].hash);
            }
            uint64_t sum = 0;
            for (int32_t q : before[size_t(i)]) sum += mix(uint64_t(position[size_t(q)]), 0x11);
            made.hash = mix(mix(made.hash, signatures[size_t(i)]), sum);
            made.items.push_back({between, part[size_t(i)]});
        }
        return add(std::move(made));
    }

    uint16_t element(int32_t node, const std::vector<uint16_t> &steps, uint16_t closes) {
        nodes.push_back(node);
        closes_.push_back(closes);
        steps_.insert(steps_.end(), steps.begin(), steps.end());
        step_offset_.push_back(uint16_t(steps_.size()));
        return uint16_t(nodes.size() - 1);
    }

    uint16_t emit(int number, uint16_t start) {  // returns the last element
        uint16_t last = start;
        for (const Item item : plans_[size_t(number)].items) {
            if (item.region < 0) {
                last = element(item.node, {last}, NONE);
                continue;
            }
            Placed placed{last, regions_[size_t(item.region)].hash, {}};
            std::vector<uint16_t> tips;
            const bool linear = regions_[size_t(item.region)].linear;
            for (const Branch &branch : regions_[size_t(item.region)].branches) {
                if (branch.plan < 0) {
                    placed.runs.push_back({1, 0, branch.hash, branch.label});
                    tips.push_back(last);
                    continue;
                }
                const uint16_t low = uint16_t(nodes.size());
                tips.push_back(emit(branch.plan, linear && low > 0 ? uint16_t(low - 1) : last));
                placed.runs.push_back({low, uint16_t(nodes.size() - 1), branch.hash, branch.label});
            }
            std::sort(tips.rbegin(), tips.rend());  // the element just before comes first: the kernel counts on it
            tips.erase(std::unique(tips.begin(), tips.end()), tips.end());
            if (linear) tips.resize(1);
            placed_.push_back(std::move(placed));
            last = element(item.node, tips, uint16_t(placed_.size() - 1));
        }
        return last;
    }

    const int32_t *rank_, *token_;
    std::vector<int32_t> level_;
    std::vector<Plan> plans_;
    std::vector<Region> regions_;
    std::vector<Placed> placed_;
    std::vector<uint16_t> closes_, steps_, step_offset_{0};
};

}  // namespace modelkeeper
