// How is a number of each floating-point type multiplied by a factor?
//
// Each type below names how its numbers are stored and scales one of them: fp32 and fp64 in double, the
// half types in float, rounded to the nearest, ties to even. The conversions have selects in the place of
// branches, so that compilers turn loops over them into vector code on any machine.
#pragma once
#include <cstdint>
#include <cstring>
#include <limits>

// Compiled twice, and chosen when the module is loaded: one wheel runs on every x86-64 and is fast on most.
#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__)
#define MODELKEEPER_VECTORS __attribute__((target_clones("avx2", "default")))
#else
#define MODELKEEPER_VECTORS
#endif

namespace modelkeeper {

inline uint32_t bits_of(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}

inline float float_of(uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

// The same as a ?:, but never a jump around the computation of `a` or `b`, which would keep a loop scalar.
inline uint32_t select(bool which, uint32_t a, uint32_t b) {
    const uint32_t mask = 0u - uint32_t(which);
    return (a & mask) | (b & ~mask);
}

struct Float64 {
    using Stored = double;
    using Factor = double;
    static constexpr bool scales = true;
    static Stored scale(Stored value, Factor factor) { return value * factor; }
};

struct Float32 {
    using Stored = float;
    using Factor = double;
    static constexpr bool scales = true;
    static Stored scale(Stored value, Factor factor) { return float(double(value) * factor); }
};

struct BFloat16 {  // the upper half of a float
    using Stored = uint16_t;
    using Factor = float;
    static constexpr bool scales = true;
    static float widen(Stored value) { return float_of(uint32_t(value) << 16); }
    static Stored narrow(float value) {
        // No NaN is rounded to a number: it comes from a bf16, or is the default one, so its lower half is 0.
        const uint32_t bits = bits_of(value);
        return Stored((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
    }
    static Stored scale(Stored value, Factor factor) { return narrow(widen(value) * factor); }
};

struct Float16 {  // 5 bits of exponent with bias 15, 10 of fraction
    using Stored = uint16_t;
    using Factor = float;
    static constexpr bool scales = true;
    static float widen(Stored value) {
        constexpr uint32_t rebias = 112u << 23;  // from bias 15 to bias 127
        const uint32_t sign = uint32_t(value & 0x8000) << 16;
        const uint32_t bits = uint32_t(value & 0x7fff) << 13;
        const uint32_t normal = bits + rebias;
        const uint32_t special = bits + 2 * rebias;  // infinity and NaN: all ones stay all ones
        // A fraction without a leading one: give it one, then take that away, and the float normalises itself.
        const uint32_t tiny = bits_of(float_of(bits + (113u << 23)) - float_of(113u << 23));
        return float_of(sign | select(bits >= (31u << 23), special, select(bits < (1u << 23), tiny, normal)));
    }
    static Stored narrow(float value) {
        const uint32_t bits = bits_of(value), sign = (bits >> 16) & 0x8000, size = bits & 0x7fffffff;
        const uint32_t normal = (size - (112u << 23) + 0xfff + ((size >> 13) & 1)) >> 13;
        // Below 2^-14 halves lie 2^-24 apart, as floats do from 0.5 on: adding 0.5 rounds to them.
        const uint32_t tiny = bits_of(float_of(size) + 0.5f) - bits_of(0.5f);
        const uint32_t finite = select(size < (113u << 23), tiny, normal);
        const uint32_t large = select(size > 0x7f800000, 0x7e00, 0x7c00);  // NaN, infinity
        return Stored(sign | select(size >= 0x477ff000, large, finite));   // from 65520 on, infinity is nearest
    }
    static Stored scale(Stored value, Factor factor) { return narrow(widen(value) * factor); }
};

// Anything else is moved, never scaled.
template <class Number> struct Bits {
    using Stored = Number;
    using Factor = double;
    static constexpr bool scales = false;
};

struct Bits128 {
    uint64_t low, high;
};

// A factor as the type computes with it; every NaN becomes the default one.
template <class Number> typename Number::Factor factor_of(double value) {
    using Factor = typename Number::Factor;
    return value == value ? Factor(value) : std::numeric_limits<Factor>::quiet_NaN();
}

template <class Number>
MODELKEEPER_VECTORS void multiply(const typename Number::Stored *__restrict source,
                                  const typename Number::Factor *__restrict factor,
                                  typename Number::Stored *__restrict out, int64_t n) {
    for (int64_t j = 0; j < n; ++j) out[j] = Number::scale(source[j], factor[j]);
}

template <class Number>
MODELKEEPER_VECTORS void multiply(const typename Number::Stored *__restrict source, typename Number::Factor factor,
                                  typename Number::Stored *__restrict out, int64_t n) {
    for (int64_t j = 0; j < n; ++j) out[j] = Number::scale(source[j], factor);
}

template <class Number>
MODELKEEPER_VECTORS void multiply(const typename Number::Factor *__restrict factor,
                                  typename Number::Stored *__restrict out, int64_t n) {
    for (int64_t j = 0; j < n; ++j) out[j] = Number::scale(out[j], factor[j]);
}

}  // namespace modelkeeper
