// How is a number of each floating-point type multiplied by a factor?
//
// Each type below names how its numbers are stored, knows which are none, and scales one of them: fp32 and fp64
// in double, the half types in float, rounded to the nearest, ties to even. The conversions have selects in the
// place of branches, so that compilers turn loops over them into vector code on any machine.
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

// Machines that convert halves themselves, eight at a time.
#if defined(__x86_64__) && defined(__GNUC__)
#define MODELKEEPER_HALVES
#include <immintrin.h>
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

// A type that machines compute with themselves; Bits has its width.
template <class Number, class Bits> struct NativeFloat {
    using Stored = Number;
    using Factor = double;
    using Flag = Bits;
    static constexpr bool scales = true;
    static Flag nan(Stored value) { return Flag(value != value); }
    static Stored scale(Stored value, Factor factor) { return Stored(double(value) * factor); }
};
using Float64 = NativeFloat<double, uint64_t>;
using Float32 = NativeFloat<float, uint32_t>;

struct BFloat16 {  // the upper half of a float
    using Stored = uint16_t;
    using Factor = float;
    using Flag = uint16_t;
    static constexpr bool scales = true;
    static Flag nan(Stored value) { return Flag((value & 0x7fff) > 0x7f80); }
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
    using Flag = uint16_t;
    static constexpr bool scales = true;
    static Flag nan(Stored value) { return Flag((value & 0x7fff) > 0x7c00); }
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

#ifdef MODELKEEPER_HALVES
// A NaN becomes the default one of its sign, as above; everything else rounds the same way.
__attribute__((target("avx2,f16c"))) inline void scale_halves(const uint16_t *source, __m256 factor, uint16_t *out) {
    const __m256 value = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i *>(source)));
    const __m128i made = _mm256_cvtps_ph(_mm256_mul_ps(value, factor), _MM_FROUND_TO_NEAREST_INT);
    const __m128i size = _mm_and_si128(made, _mm_set1_epi16(0x7fff));
    const __m128i no_number = _mm_cmpgt_epi16(size, _mm_set1_epi16(0x7c00));
    const __m128i standard = _mm_or_si128(_mm_andnot_si128(_mm_set1_epi16(0x7fff), made), _mm_set1_epi16(0x7e00));
    _mm_storeu_si128(reinterpret_cast<__m128i *>(out), _mm_blendv_epi8(made, standard, no_number));
}

__attribute__((target("avx2,f16c"))) inline int64_t scale_all_halves(const uint16_t *source, const float *factor,
                                                                     bool one, uint16_t *out, int64_t n) {
    int64_t j = 0;
    for (; j + 8 <= n; j += 8)
        scale_halves(source + j, one ? _mm256_set1_ps(*factor) : _mm256_loadu_ps(factor + j), out + j);
    return j;
}

inline bool converts_halves() {
    static const bool can = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
    return can;
}

template <>
inline void multiply<Float16>(const uint16_t *__restrict source, const float *__restrict factor,
                              uint16_t *__restrict out, int64_t n) {
    int64_t j = converts_halves() ? scale_all_halves(source, factor, false, out, n) : 0;
    for (; j < n; ++j) out[j] = Float16::scale(source[j], factor[j]);
}

template <>
inline void multiply<Float16>(const uint16_t *__restrict source, float factor, uint16_t *__restrict out, int64_t n) {
    int64_t j = converts_halves() ? scale_all_halves(source, &factor, true, out, n) : 0;
    for (; j < n; ++j) out[j] = Float16::scale(source[j], factor);
}

template <>
inline void multiply<Float16>(const float *__restrict factor, uint16_t *__restrict out, int64_t n) {
    int64_t j = converts_halves() ? scale_all_halves(out, factor, false, out, n) : 0;
    for (; j < n; ++j) out[j] = Float16::scale(out[j], factor[j]);
}
#endif

}  // namespace modelkeeper
