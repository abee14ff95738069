// Functions of as many numbers at once as the processor takes, for native_attention.cpp.
//
// Vectors are those that GCC and Clang know without any library: arithmetic works on them as on numbers.

#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <new>
#include <type_traits>

#if defined(__AVX__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
constexpr int VECTOR_BYTES = 64;
#elif defined(__AVX__)
constexpr int VECTOR_BYTES = 32;
#else
constexpr int VECTOR_BYTES = 16;
#endif

typedef float Floats __attribute__((vector_size(VECTOR_BYTES)));
typedef double Doubles __attribute__((vector_size(VECTOR_BYTES)));
typedef int32_t Integers __attribute__((vector_size(VECTOR_BYTES)));

template <class Real> struct VectorOf;
template <> struct VectorOf<float> { typedef Floats type; };
template <> struct VectorOf<double> { typedef Doubles type; };

// Rows in memory are padded to this many numbers, a multiple of any vector's.
constexpr int64_t LANES = 16;
inline int64_t padded(int64_t count) { return (count + LANES - 1) / LANES * LANES; }

#define INLINE inline __attribute__((always_inline))

// Of and to the beginning of a vector in a padded row.
template <class Real> INLINE typename VectorOf<Real>::type load(const Real *from) {
    return *reinterpret_cast<const typename VectorOf<Real>::type *>(from);
}
template <class Real> INLINE void store(Real *to, typename VectorOf<Real>::type x) {
    *reinterpret_cast<typename VectorOf<Real>::type *>(to) = x;
}

template <class V> using NumberIn = std::decay_t<decltype(V{}[0])>;
template <class V> constexpr int lanes_of = int(sizeof(V) / sizeof(NumberIn<V>));

template <class V> INLINE V all(NumberIn<V> x) { return V{} + x; }

template <class V> INLINE NumberIn<V> sum_of_lanes(V x) {
    NumberIn<V> sum = x[0];
    for (int lane = 1; lane < lanes_of<V>; ++lane) sum += x[lane];
    return sum;
}
#if defined(__AVX512F__)
INLINE float sum_of_lanes(Floats x) { return _mm512_reduce_add_ps(x); }
#endif

template <class V> INLINE auto highest_lane(V x) {
    auto highest = x[0];
    for (int lane = 1; lane < lanes_of<V>; ++lane) highest = x[lane] > highest ? x[lane] : highest;
    return highest;
}

// Not-a-number in the first argument stays what it is. Compilers do not see that this is one instruction.
template <class V> INLINE V at_least(V x, V low) { return x < low ? low : x; }
template <class V> INLINE V at_most(V x, V high) { return x > high ? high : x; }
#if defined(__AVX512F__)
INLINE Floats at_least(Floats x, Floats low) { return _mm512_max_ps(low, x); }
INLINE Floats at_most(Floats x, Floats high) { return _mm512_min_ps(high, x); }
#elif defined(__AVX__)
INLINE Floats at_least(Floats x, Floats low) { return _mm256_max_ps(low, x); }
INLINE Floats at_most(Floats x, Floats high) { return _mm256_min_ps(high, x); }
#endif

// 2^x for |x| <= 126, relative error 2e-7: a polynomial for the fraction, the exponent's bits for the rest.
INLINE Floats power_of_two(Floats x) {
    const Floats magic = all<Floats>(12582912.0f + 127.0f);  // 1.5 * 2^23: the sum ends in x rounded, plus the bias
    const Floats shifted = x + magic;
    const Floats f = x - (shifted - magic);
    const Floats scale = Floats(Integers(shifted) << 23);
    Floats p = all<Floats>(0.0013264727213757603f);
    p = p * f + 0.00967151281249448f;
    p = p * f + 0.05550733744824493f;
    p = p * f + 0.24022242082677503f;
    p = p * f + 0.6931469775973311f;
    p = p * f + 1.0f;
    return p * scale;
}
INLINE Doubles power_of_two(Doubles x) {
    for (int lane = 0; lane < lanes_of<Doubles>; ++lane) x[lane] = std::exp2(x[lane]);
    return x;
}

constexpr double LOG2_E = 1.4426950408889634;

// e^x for x <= 80, exactly 0 far below.
INLINE Floats exponential(Floats x) {
    const Floats y = x * float(LOG2_E), lowest = all<Floats>(-126.0f);
    return y < lowest ? Floats{} : power_of_two(at_least(y, lowest));
}
INLINE Doubles exponential(Doubles x) {
    for (int lane = 0; lane < lanes_of<Doubles>; ++lane) x[lane] = std::exp(x[lane]);
    return x;
}

// log(x) for normal positive x, absolute error 1e-7 of max(1, |log x|).
INLINE Floats logarithm(Floats x) {
    const int32_t root_half = 0x3f3504f3;
    const Integers above = Integers(x) - root_half;
    const Floats f = Floats((above & 0x7fffff) + root_half) - 1.0f;  // the mantissa, in [sqrt(1/2), sqrt(2)), less 1
    Floats p = all<Floats>(-0.10034617224569453f);
    p = p * f + 0.1633564737278896f;
    p = p * f - 0.17325996064222088f;
    p = p * f + 0.19888276853452463f;
    p = p * f - 0.2496146502953923f;
    p = p * f + 0.33335261399308624f;
    p = p * f - 0.5000058438271869f;
    return f + f * f * p + __builtin_convertvector(above >> 23, Floats) * 0.6931471805599453f;
}
INLINE Doubles logarithm(Doubles x) {
    for (int lane = 0; lane < lanes_of<Doubles>; ++lane) x[lane] = std::log(x[lane]);
    return x;
}

template <class V> INLINE V sigmoid(V x) { return 1 / (1 + exponential(-at_least(x, all<V>(-80)))); }

template <class V> INLINE V log_sigmoid(V x) {
    const V zero{};
    return at_most(x, zero) - logarithm(1 + exponential(x < zero ? x : -x));
}

// Not a number stays one.
template <class V> INLINE V relu(V x) {
    const V zero{};
    return x < zero ? zero : x;
}

// casper.network.noise.mix
INLINE uint32_t mix(uint32_t x) {
    x ^= x >> 16;
    x *= 0x7FEB352Du;
    x ^= x >> 15;
    x *= 0x846CA68Bu;
    return x ^ (x >> 16);
}
constexpr uint32_t COLUMN_STEP = 0x9E3779B1u;

// Memory of one worker, handed out in rows that begin at cache lines.
template <class Real> class Arena {
    Real *memory_;
    int64_t used_ = 0;

  public:
    explicit Arena(int64_t count)
        : memory_(static_cast<Real *>(::operator new(sizeof(Real) * size_t(count), std::align_val_t(64)))) {}
    Arena(const Arena &) = delete;
    Arena &operator=(const Arena &) = delete;
    ~Arena() { ::operator delete(memory_, std::align_val_t(64)); }
    Real *take(int64_t count) {
        used_ += count;
        return memory_ + used_ - count;
    }
};
