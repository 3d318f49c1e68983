// The native module: what each of its functions is for is said in src/modelkeeper/_native.pyi.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>

#include "colours.hpp"
#include "confine.hpp"
#include "matching.hpp"
#include "gather.hpp"
#include "knapsack.hpp"
#include "memory.hpp"

namespace nb = nanobind;
using modelkeeper::In;
using Bytes = In<uint8_t>;
using Space = nb::ndarray<uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Index = std::optional<In<int64_t>>;
using Factor = std::optional<In<double>>;

static modelkeeper::Out<uint64_t> colours(In<uint64_t> nodes, In<int32_t> offsets, In<int32_t> sources,
                                          In<uint64_t> edges, int64_t budget) {
    modelkeeper::demand_dag(nodes.size(), offsets, sources, edges.size());
    std::vector<uint64_t> result(nodes.size());
    {
        nb::gil_scoped_release release;
        const modelkeeper::Dag dag{nodes.size(), nodes.data(), offsets.data(), sources.data(), edges.data()};
        modelkeeper::colours(dag, budget, result.data());
    }
    return modelkeeper::give(result);
}

[[noreturn]] static void refuse(const std::string &problem) { throw nb::value_error(problem.c_str()); }

// 0 threads mean as many as the machine runs at once.
static size_t chosen(size_t threads) { return threads ? threads : std::max(1u, std::thread::hardware_concurrency()); }

// Bytes of an array of this shape; refused if they are not the bytes there are.
static void expect_bytes(const char *what, const std::vector<int64_t> &shape, size_t itemsize, size_t bytes) {
    size_t size = itemsize;
    for (int64_t n : shape) {
        if (n < 0) refuse(std::string("the shape of the ") + what + " has a negative size");
        if (n > 0 && size > (size_t(1) << 62) / size_t(n)) refuse(std::string(what) + " is larger than memory");
        size *= size_t(n);
    }
    if (size != bytes)
        refuse(std::string("the ") + what + " has " + std::to_string(bytes) + " bytes, its shape says " +
               std::to_string(size));
}

// What the gather needs to know of one axis: a checked copy, which nobody can change while it runs.
static modelkeeper::Axis checked(size_t number, int64_t available, int64_t size, int64_t stride,
                                 const Index &index, const Factor &factor) {
    const std::string where = "axis " + std::to_string(number) + ": ";
    modelkeeper::Axis axis{size, stride, {}, {}};
    if (!index && available != size)
        refuse(where + "the result has " + std::to_string(size) + " units and the source " +
               std::to_string(available) + ", so it needs an index");
    if (index && index->size() != size_t(size))
        refuse(where + "the index has " + std::to_string(index->size()) + " entries, the result " +
               std::to_string(size) + " units");
    if (factor && factor->size() != size_t(size))
        refuse(where + "there are " + std::to_string(factor->size()) + " factors, the result has " +
               std::to_string(size) + " units");
    bool identity = true;
    for (int64_t i = 0; index && i < size; ++i) {
        const int64_t from = index->data()[i];
        if (from < -1 || from >= available)
            refuse(where + "entry " + std::to_string(i) + " of the index is " + std::to_string(from) +
                   ", the source has " + std::to_string(available) + " units (-1 stands for zero)");
        identity &= from == i;
        axis.offset.push_back(from < 0 ? modelkeeper::HOLE : from * stride);
    }
    if (identity) axis.offset.clear();
    if (factor) axis.factor.assign(factor->data(), factor->data() + size);
    return axis;
}

// A source of these sizes whose neighbours are so many elements apart: refused if it is not within its bytes.
static void expect_within(const std::vector<int64_t> &sizes, const std::vector<int64_t> &strides, size_t itemsize,
                          size_t bytes) {
    size_t last = 0;
    bool empty = false;
    for (size_t k = 0; k < sizes.size(); ++k) {
        if (sizes[k] < 0) refuse("the shape of the source has a negative size");
        if (strides[k] < 0) refuse("axis " + std::to_string(k) + ": a stride is negative");
        empty |= sizes[k] == 0;
        const size_t steps = sizes[k] > 0 ? size_t(sizes[k] - 1) : 0, stride = size_t(strides[k]);
        if (steps && stride > (size_t(1) << 58) / steps) refuse("source is larger than memory");
        last += steps * stride;
        if (last > size_t(1) << 58) refuse("source is larger than memory");
    }
    if (!empty && (last + 1) * itemsize > bytes)
        refuse("the source has " + std::to_string(bytes) + " bytes, its shape says at least " +
               std::to_string((last + 1) * itemsize));
}

static void gather(Bytes source, Space out, const std::string &kind, size_t itemsize,
                   const std::vector<int64_t> &sizes, const std::vector<int64_t> &strides,
                   const std::vector<int64_t> &shape, const std::vector<Index> &indices,
                   const std::vector<Factor> &factors, size_t threads) {
    using namespace modelkeeper;
    using Run = void (*)(std::vector<Axis>, const void *, size_t, void *, size_t);
    const struct {
        const char *kind;
        size_t itemsize;
        Run run;
    } known[] = {{"float16", 2, &modelkeeper::gather<Float16>},
                 {"bfloat16", 2, &modelkeeper::gather<BFloat16>},
                 {"float32", 4, &modelkeeper::gather<Float32>},
                 {"float64", 8, &modelkeeper::gather<Float64>},
                 {"bits", 1, &modelkeeper::gather<Bits<uint8_t>>},
                 {"bits", 2, &modelkeeper::gather<Bits<uint16_t>>},
                 {"bits", 4, &modelkeeper::gather<Bits<uint32_t>>},
                 {"bits", 8, &modelkeeper::gather<Bits<uint64_t>>},
                 {"bits", 16, &modelkeeper::gather<Bits<Bits128>>}};
    Run run = nullptr;
    for (const auto &candidate : known)
        if (kind == candidate.kind && itemsize == candidate.itemsize) run = candidate.run;
    if (!run) refuse("no gather for " + kind + " of " + std::to_string(itemsize) + " bytes");

    const size_t rank = shape.size();
    if (rank > 16) refuse("an array of " + std::to_string(rank) + " axes; at most 16 are supported");
    if (sizes.size() != rank || strides.size() != rank || indices.size() != rank || factors.size() != rank)
        refuse("source, strides, result, indices and factors must have the same number of axes");
    expect_within(sizes, strides, itemsize, source.size());
    expect_bytes("result", shape, itemsize, out.size());
    if (source.data() < out.data() + out.size() && out.data() < source.data() + source.size())
        refuse("the result overlaps the source");

    std::vector<Axis> axes(rank);
    for (size_t k = 0; k < rank; ++k) {
        if (factors[k] && kind == "bits") refuse("axis " + std::to_string(k) + ": bits take no factor");
        axes[k] = checked(k, sizes[k], shape[k], strides[k], indices[k], factors[k]);
    }
    if (out.size() == 0) return;
    nb::gil_scoped_release release;
    run(std::move(axes), source.data(), source.size() / itemsize, out.data(), chosen(threads));
}

static bool holds_nan(Bytes data, const std::string &kind) {
    using namespace modelkeeper;
    auto look = [&](auto number) {
        using Number = decltype(number);
        constexpr size_t size = sizeof(typename Number::Stored);
        if (data.size() % size) refuse(std::to_string(data.size()) + " bytes are no numbers of " + kind);
        nb::gil_scoped_release release;
        return modelkeeper::holds_nan<Number>(data.data(), data.size() / size);
    };
    if (kind == "float16") return look(Float16{});
    if (kind == "bfloat16") return look(BFloat16{});
    if (kind == "float32") return look(Float32{});
    if (kind == "float64") return look(Float64{});
    refuse("no numbers of kind " + kind + " are known");
}

static void copy(const std::vector<Bytes> &sources, const std::vector<Space> &outs, size_t threads) {
    if (sources.size() != outs.size())
        refuse(std::to_string(sources.size()) + " sources, but " + std::to_string(outs.size()) + " places");
    std::vector<modelkeeper::Move> moves;
    for (size_t n = 0; n < sources.size(); ++n) {
        if (sources[n].size() != outs[n].size())
            refuse("source " + std::to_string(n) + " has " + std::to_string(sources[n].size()) + " bytes, its place " +
                   std::to_string(outs[n].size()));
        moves.push_back({reinterpret_cast<const char *>(sources[n].data()), reinterpret_cast<char *>(outs[n].data()),
                         sources[n].size()});
    }
    nb::gil_scoped_release release;
    modelkeeper::move_all(moves, chosen(threads));
}

static std::tuple<modelkeeper::Out<uint8_t>, double> pack_core(In<double> worth, In<int64_t> size, In<double> ahead,
                                                               int64_t room, double price, double enough, double least,
                                                               int64_t most, int64_t fewest) {
    const size_t n = worth.size();
    if (size.size() != n || ahead.size() != n + 1) refuse("worths, sizes and what lies ahead are not of the same things");
    constexpr int64_t largest = modelkeeper::Knapsack::BEYOND / 2;
    if (room < 0 || room >= largest) refuse("the room is negative, or larger than all rooms");
    if (most < 0 || most > int64_t(1) << 30 || fewest < 1 || fewest > int64_t(1) << 20)
        refuse("a number of choices to look at is out of range");
    for (size_t i = 0; i < n; ++i)
        if (size.data()[i] < 0 || size.data()[i] >= largest || !(worth.data()[i] >= 0 && worth.data()[i] <= 1e300))
            refuse("thing " + std::to_string(i) + " has no size or no worth");
    modelkeeper::Knapsack knapsack(worth.data(), size.data(), ahead.data(), n, room, price, enough, least);
    std::vector<uint8_t> chosen;
    {
        nb::gil_scoped_release release;
        chosen = knapsack.find(most, fewest);
    }
    return {modelkeeper::give(chosen), knapsack.at_most()};
}

NB_MODULE(_native, m) {
    m.def("colours", &colours, nb::arg("nodes"), nb::arg("offsets"), nb::arg("sources"), nb::arg("edges"),
          nb::arg("budget"));
    modelkeeper::bind_matching(m);
    m.def("gather", &gather, nb::arg("source"), nb::arg("out"), nb::arg("kind"), nb::arg("itemsize"),
          nb::arg("sizes"), nb::arg("strides"), nb::arg("shape"), nb::arg("indices").noconvert(), nb::arg("factors").noconvert(),
          nb::arg("threads") = 0);
    m.def("holds_nan", &holds_nan, nb::arg("data"), nb::arg("kind"));
    m.def("confine", &modelkeeper::confine);
    m.def("pack_core", &pack_core, nb::arg("worth"), nb::arg("size"), nb::arg("ahead"), nb::arg("room"),
          nb::arg("price"), nb::arg("enough"), nb::arg("least"), nb::arg("most"), nb::arg("fewest"));
    m.def("copy", &copy, nb::arg("sources"), nb::arg("outs"), nb::arg("threads") = 0);
}
