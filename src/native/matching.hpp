// The matching half of the native module: arrays in, arrays out, the GIL released in between.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/tuple.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <tuple>
#include <vector>

#include "align.hpp"
#include "decompose.hpp"
#include "layout.hpp"
#include "medoids.hpp"
#include "search.hpp"

namespace modelkeeper {

namespace nb = nanobind;
template <class T> using In = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T> using In2 = nb::ndarray<const T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
template <class T> using Out = nb::ndarray<nb::numpy, T, nb::ndim<1>>;

template <class T> Out<T> give(const std::vector<T> &values) {
    auto *copy = new T[values.size()];
    std::copy(values.begin(), values.end(), copy);
    return Out<T>(copy, {values.size()}, nb::capsule(copy, [](void *p) noexcept { delete[] static_cast<T *>(p); }));
}

inline void demand(bool holds, const char *problem) {
    if (!holds) throw nb::value_error(problem);
}

// Do these arrays say from which earlier nodes, over which labelled edges, each of n nodes takes its input?
inline void demand_dag(size_t n, const In<int32_t> &offset, const In<int32_t> &source, size_t labels) {
    demand(offset.size() == n + 1 && source.size() == labels && offset.data()[0] == 0 &&
               size_t(offset.data()[n]) == source.size(),
           "offsets, sources and edges do not describe one graph");
    for (size_t v = 0; v < n; ++v) {
        demand(offset.data()[v] <= offset.data()[v + 1], "offsets must not fall");
        for (int32_t e = offset.data()[v]; e < offset.data()[v + 1]; ++e)
            demand(source.data()[e] >= 0 && size_t(source.data()[e]) < v, "an edge must come from an earlier node");
    }
}

// Each thread's own, so that its scratch memory serves all that the thread aligns.
inline Aligner &aligner() {
    // Behind a pointer: were its address a constant, compilers would write it into all that the aligner does, and
    // each access would look up the thread's memory anew.
    static thread_local const std::unique_ptr<Aligner> mine = std::make_unique<Aligner>();
    return *mine;
}

inline const Token *tokens(const In2<int64_t> &array) {
    demand(array.size() == 0 || array.shape(1) == Token::FIELDS, "a token has 16 fields");
    return reinterpret_cast<const Token *>(array.data());
}

inline Knobs knobs(const In<int64_t> &array) {
    demand(array.size() == 4, "there are four knobs");
    return {array.data()[0], array.data()[1], array.data()[2], array.data()[3]};
}

inline std::tuple<Out<uint16_t>, Out<int32_t>, Out<int32_t>> decompose(In<uint64_t> content, In<int32_t> rank,
                                                                       In<int32_t> token, In<int32_t> offset,
                                                                       In<int32_t> source, In<uint16_t> label) {
    const size_t n = content.size();
    demand(rank.size() == n && token.size() == n, "the arrays do not describe one graph");
    demand_dag(n, offset, source, label.size());
    std::vector<uint16_t> form;
    std::vector<int32_t> nodes, used;
    {
        nb::gil_scoped_release release;
        const Decomposition graph(n, content.data(), rank.data(), offset.data(), source.data(), label.data());
        Layout made(graph, token.data());
        form = made.form();
        nodes = std::move(made.nodes);
        used = std::move(made.tokens);
    }
    return {give(form), give(nodes), give(used)};
}

inline Out<uint16_t> links(In<uint16_t> form, In2<int64_t> its_tokens) {
    demand(Form::valid(form.data(), form.size()) && form.data()[1] == its_tokens.shape(0),
           "the tokens do not fit the form");
    std::vector<uint16_t> counts(LINKS);
    count_links(Form(form.data()), tokens(its_tokens), counts.data());
    return give(counts);
}

inline bool valid_form(In<uint16_t> words) { return Form::valid(words.data(), words.size()); }

inline nb::ndarray<nb::numpy, int32_t, nb::ndim<2>> rewards(In2<int64_t> parents, In2<int64_t> child,
                                                            In<int64_t> settings) {
    const Token *const a = tokens(parents);
    const size_t n = parents.shape(0), k = child.shape(0);
    ChildTokens own(tokens(child), k, knobs(settings));
    auto *table = new int32_t[n * k];
    nb::capsule owner(table, [](void *p) noexcept { delete[] static_cast<int32_t *>(p); });
    for (size_t i = 0; i < n; ++i) own.row(a[i], table + i * k);
    return {table, {n, k}, owner};
}

// One child against a store of models: bounds for any of them, scores for any of them. The arrays are
// those of modelkeeper.matching.segments; they must not change below what `offset` and `parents` cover.
class Scan {
  public:
    Scan(In<uint16_t> words, In<int64_t> forms, In<int64_t> offset, In<int32_t> token, In<uint16_t> count,
         In2<uint16_t> links, In2<int64_t> parents, In<uint16_t> child, In2<int64_t> child_tokens,
         In<int32_t> child_counts, In<int64_t> settings, int threads)
        : words_(words),
          forms_(forms),
          offset_(offset),
          token_(token),
          count_(count),
          links_(links),
          child_(child),
          child_tokens_(child_tokens),
          child_counts_(child_counts),
          parents_(parents),
          knobs_(knobs(settings)),
          threads_(threads) {
        demand(Form::valid(child.data(), child.size()), "the child is no form");
        demand(child.data()[1] == child_tokens.shape(0) && child_counts.size() == child_tokens.shape(0),
               "the child's tokens do not fit it");
        demand(forms.size() + 1 == offset.size() && token.size() == count.size() && links.shape(0) == forms.size() &&
                   links.shape(1) == LINKS,
               "the arrays do not describe one store");
        nb::gil_scoped_release release;
        bounds_.emplace(tokens(parents), int64_t(parents.shape(0)), Form(child.data()), tokens(child_tokens),
                        child_counts.data(), knobs_, threads);
    }

    Out<int64_t> bounds(In<int32_t> which, bool fine) const {
        check(which);
        const int64_t n = int64_t(which.size());
        std::vector<int64_t> result(which.size());
        {
            nb::gil_scoped_release release;
            const Histograms all{offset_.data(), token_.data(), count_.data(), links_.data()};
            spread(n, 1024, threads_, [&] {
                return [&, scratch = bounds_->scratch()](int64_t begin, int64_t end) mutable {
                    for (int64_t i = begin; i < end; ++i)
                        result[size_t(i)] =
                            fine ? bounds_->fine(all, which.data()[i], scratch) : bounds_->coarse(all, which.data()[i]);
                };
            });
        }
        return give(result);
    }

    Out<int64_t> scores(In<int32_t> which) const {
        check(which);
        const int64_t n = int64_t(which.size());
        std::vector<int64_t> result(which.size());
        std::atomic<bool> damaged{false};
        {
            nb::gil_scoped_release release;
            spread(n, 4, threads_, [&] {
                return [&, scorer = Scorer(*this)](int64_t begin, int64_t end) mutable {
                    for (int64_t i = begin; i < end; ++i)
                        if (!scorer.score(which.data()[i], result[size_t(i)])) damaged = true;
                };
            });
        }
        demand(!damaged, "a stored form is damaged");
        return give(result);
    }

  private:
    // What a thread needs to align models with the child.
    class Scorer {
      public:
        explicit Scorer(const Scan &scan)
            : scan_(scan), child_(scan.child_.data()), own_(tokens(scan.child_tokens_), child_.tokens, scan.knobs_) {}

        // Align a model and tell its score, unless its form is damaged.
        bool score(int32_t model, int64_t &score) {
            const uint16_t *const words = scan_.words_.data() + scan_.forms_.data()[model];
            const int64_t first = scan_.offset_.data()[model], count = scan_.offset_.data()[model + 1] - first;
            if (!Form::valid(words, Form::words(words)) || Form(words).tokens != count) return false;
            table_.resize(size_t(count) * child_.tokens);
            rows_.clear();
            for (int64_t t = 0; t < count; ++t) {
                int32_t *const row = table_.data() + size_t(t) * child_.tokens;
                own_.row(tokens(scan_.parents_)[scan_.token_.data()[first + t]], row);
                rows_.push_back(row);
            }
            const Score made = aligner().align(Form(words), child_, rows_.data(), scan_.knobs_);
            score = made.layers + made.edges;
            return true;
        }

      private:
        const Scan &scan_;
        const Form child_;
        ChildTokens own_;
        std::vector<int32_t> table_;
        std::vector<const int32_t *> rows_;
    };

    // Are these models inside the store?
    void check(const In<int32_t> &which) const {
        for (size_t i = 0; i < which.size(); ++i) {
            const int32_t at = which.data()[i];
            demand(at >= 0 && size_t(at) < forms_.size(), "no such model");
            const int64_t from = offset_.data()[at], to = offset_.data()[at + 1], form = forms_.data()[at];
            demand(from >= 0 && from <= to && size_t(to) <= token_.size(), "tokens leave their store");
            demand(form >= 0 && size_t(form) + Form::HEADER <= words_.size() &&
                       size_t(form) + Form::words(words_.data() + form) <= words_.size(),
                   "a form leaves its store");
        }
    }

    const In<uint16_t> words_;
    const In<int64_t> forms_, offset_;
    const In<int32_t> token_;
    const In<uint16_t> count_;
    const In2<uint16_t> links_;
    const In<uint16_t> child_;
    const In2<int64_t> child_tokens_;
    const In<int32_t> child_counts_;
    const In2<int64_t> parents_;
    const Knobs knobs_;
    const int threads_;
    std::optional<Bounds> bounds_;
};

// One pair: the scores of layers and of edges, and the matched elements, parent's and child's in turn.
inline std::tuple<int64_t, int64_t, Out<int32_t>> align_pair(In<uint16_t> parent, In<uint16_t> child,
                                                             In2<int32_t> table, In<int64_t> settings) {
    demand(Form::valid(parent.data(), parent.size()) && Form::valid(child.data(), child.size()), "no form");
    const Form p(parent.data()), c(child.data());
    demand(table.shape(0) == p.tokens && table.shape(1) == c.tokens, "the table fits neither side");
    const Knobs knob = knobs(settings);
    std::vector<int32_t> matched;
    Score score;
    {
        nb::gil_scoped_release release;
        std::vector<const int32_t *> rows;
        for (size_t t = 0; t < p.tokens; ++t) rows.push_back(table.data() + t * c.tokens);
        auto &pairs = aligner().pairs;
        score = aligner().align(p, c, rows.data(), knob);
        std::sort(pairs.begin(), pairs.end());
        for (const auto &[x, y] : pairs) matched.push_back(x), matched.push_back(y);
    }
    return {score.layers, score.edges, give(matched)};
}

inline Out<int64_t> medoids(const In2<double> &distances, int64_t count) {
    const size_t n = distances.shape(0);
    demand(distances.shape(1) == n, "distances must be a square");
    demand(count > 0 && size_t(count) <= n, "there must be a medoid, and no more of them than things");
    for (size_t i = 0; i < n * n; ++i)
        demand(distances.data()[i] >= 0 && distances.data()[i] <= 1e150, "a distance must be finite, and not negative");
    std::vector<int64_t> chosen;
    {
        nb::gil_scoped_release release;
        chosen = Medoids(distances.data(), n, size_t(count)).find();
    }
    return give(chosen);
}

inline void bind_matching(nb::module_ &m) {
    m.def("medoids", &medoids, nb::arg("distances"), nb::arg("count"));
    m.def("decompose", &decompose, nb::arg("content"), nb::arg("rank"), nb::arg("token"), nb::arg("offsets"),
          nb::arg("sources"), nb::arg("labels"));
    m.def("valid_form", &valid_form, nb::arg("words"));
    m.def("links", &links, nb::arg("form"), nb::arg("tokens"));
    m.def("rewards", &rewards, nb::arg("parents"), nb::arg("child"), nb::arg("knobs"));
    nb::class_<Scan>(m, "Scan")
        .def(nb::init<In<uint16_t>, In<int64_t>, In<int64_t>, In<int32_t>, In<uint16_t>, In2<uint16_t>, In2<int64_t>,
                      In<uint16_t>, In2<int64_t>, In<int32_t>, In<int64_t>, int>(),
             nb::arg("words"), nb::arg("forms"), nb::arg("offsets"), nb::arg("tokens"), nb::arg("counts"),
             nb::arg("links"), nb::arg("parents"), nb::arg("child"), nb::arg("child_tokens"), nb::arg("child_counts"),
             nb::arg("knobs"), nb::arg("threads"))
        .def("bounds", &Scan::bounds, nb::arg("which"), nb::arg("fine"))
        .def("scores", &Scan::scores, nb::arg("which"));
    m.def("align_pair", &align_pair, nb::arg("parent"), nb::arg("child"), nb::arg("rewards"), nb::arg("knobs"));
}

}  // namespace modelkeeper
