// What the texts of users' elementwise, reduction and Python kernels are written in besides C:
// names of types, arrays with shape and strides, indices. What runs them on the CPU knows the same
// names (arete/device/lane_parser.cpp).
//
// With ARETE_CHECKED an index out of range is recorded, with its line, in memory that the host
// reads after the launch, and the first element stands for the one that is not there.
#pragma once

typedef signed char int8;
typedef short int16;
typedef int int32;
typedef long long int64;
typedef unsigned char uint8;
typedef unsigned short uint16;
typedef unsigned int uint32;
typedef unsigned long long uint64;
typedef float float32;
typedef double float64;

#ifndef INFINITY
#define INFINITY __int_as_float(0x7f800000)
#endif
#ifndef NAN
#define NAN __int_as_float(0x7fffffff)
#endif
#ifndef M_PI
#define M_PI 3.14159265358979323846
#endif

#define ARETE_USER static __device__ __forceinline__

// Half types compute as floats.
struct float16 {
  unsigned short bits;
  float16() = default;
  template <class N>
  __device__ float16(N v) {
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(float(v)));
  }
  __device__ operator float() const {
    float r;
    asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(bits));
    return r;
  }
};
struct bfloat16 {
  unsigned short bits;
  bfloat16() = default;
  template <class N>
  __device__ bfloat16(N v) {
    const unsigned b = __float_as_uint(float(v));
    bits = (b & 0x7fffffffu) > 0x7f800000u ? (unsigned short)(b >> 16 | 0x40)
                                           : (unsigned short)((b + 0x7fffu + (b >> 16 & 1u)) >> 16);
  }
  __device__ operator float() const { return __uint_as_float((unsigned)bits << 16); }
};
#define ARETE_COMPOUND(T, op) \
  ARETE_USER T& operator op##=(T& a, float b) { return a = T(float(a) op b); }
ARETE_COMPOUND(float16, +)
ARETE_COMPOUND(float16, -)
ARETE_COMPOUND(float16, *)
ARETE_COMPOUND(float16, /)
ARETE_COMPOUND(bfloat16, +)
ARETE_COMPOUND(bfloat16, -)
ARETE_COMPOUND(bfloat16, *)
ARETE_COMPOUND(bfloat16, /)

#ifdef ARETE_CHECKED
struct ArrayIndex {
  ptrdiff_t value;
  int line;
  template <class N>
  __device__ ArrayIndex(N v, int l = __builtin_LINE()) : value((ptrdiff_t)v), line(l) {}
};
// {1, line, index, size} of the first that failed.
ARETE_USER ptrdiff_t arete_bounded(ArrayIndex i, ptrdiff_t size, long long* fault) {
  if (i.value >= 0 && i.value < size) return i.value;
  if (atomicCAS((unsigned long long*)fault, 0ull, 1ull) == 0ull) {
    fault[1] = i.line;
    fault[2] = i.value;
    fault[3] = size;
  }
  return 0;
}
#else
typedef ptrdiff_t ArrayIndex;
#endif

/// `T` elements; with `contiguous` an index in C order is a place.
template <class T, int ndim_, bool contiguous>
class CArray {
 public:
  static const int ndim = ndim_;
#ifdef ARETE_CHECKED
  long long* fault = nullptr;
#endif

  template <class... Sizes>
  __device__ CArray(T* p, ptrdiff_t size, Sizes... sizes) : data_(p), size_(size) {
    const ptrdiff_t all[] = {(ptrdiff_t)sizes..., 0};
    for (int d = 0; d < ndim_; ++d) {
      shape_[d] = all[d];
      strides_[d] = all[ndim_ + d];
    }
  }
  __device__ ptrdiff_t size() const { return size_; }
  __device__ const ptrdiff_t* shape() const { return shape_; }
  __device__ const ptrdiff_t* strides() const { return strides_; }
  __device__ T* data() const { return data_; }

  /// By the index in C order.
  __device__ T& operator[](ArrayIndex index) const {
    ptrdiff_t i = within(index, size_);
    if (contiguous) return data_[i];
    ptrdiff_t offset = 0;
    if (size_ <= 0x7fffffff) {
      unsigned rest = (unsigned)i;
      for (int d = ndim_ - 1; d > 0; --d) {
        const unsigned s = (unsigned)shape_[d], q = rest / s;
        offset += (ptrdiff_t)(rest - q * s) * strides_[d];
        rest = q;
      }
      if (ndim_ > 0) offset += (ptrdiff_t)rest * strides_[0];
    } else {
      for (int d = ndim_ - 1; d > 0; --d) {
        offset += i % shape_[d] * strides_[d];
        i /= shape_[d];
      }
      if (ndim_ > 0) offset += i * strides_[0];
    }
    return at(offset);
  }
  /// By an index for each dimension. A template, since 0 is a null pointer, too.
  template <class P>
  __device__ T& operator[](P* index) const {
    ptrdiff_t offset = 0;
    for (int d = 0; d < ndim_; ++d) offset += within(index[d], shape_[d]) * strides_[d];
    return at(offset);
  }
  template <class... Indices>
  __device__ T& operator()(ArrayIndex first, Indices... others) const {
    static_assert(1 + sizeof...(Indices) == ndim_, "as many indices as the array has dimensions");
    ptrdiff_t offset = within(first, shape_[0]) * strides_[0];
    int d = 1;
    ((offset += within(others, shape_[d]) * strides_[d], ++d), ...);
    return at(offset);
  }

 private:
  __device__ T& at(ptrdiff_t offset) const { return *(T*)((char*)data_ + offset); }
#ifdef ARETE_CHECKED
  __device__ ptrdiff_t within(ArrayIndex i, ptrdiff_t size) const {
    return arete_bounded(i, size, fault);
  }
#else
  __device__ ptrdiff_t within(ptrdiff_t i, ptrdiff_t) const { return i; }
#endif

  T* data_;
  ptrdiff_t size_, shape_[ndim_ > 0 ? ndim_ : 1], strides_[ndim_ > 0 ? ndim_ : 1];
};

/// Where an element is among `ndim` dimensions.
template <int ndim_>
class CIndexer {
 public:
  static const int ndim = ndim_;
  template <class... Sizes>
  __device__ CIndexer(ptrdiff_t size, Sizes... sizes) : size_(size) {
    const ptrdiff_t all[] = {(ptrdiff_t)sizes..., 0};
    for (int d = 0; d < ndim_; ++d) shape_[d] = all[d];
  }
  __device__ ptrdiff_t size() const { return size_; }
  __device__ const ptrdiff_t* shape() const { return shape_; }
  __device__ const ptrdiff_t* get() const { return index_; }
  __device__ void set(ptrdiff_t i) {
    for (int d = ndim_ - 1; d > 0; --d) {
      if (size_ <= 0x7fffffff) {
        const unsigned s = (unsigned)shape_[d], q = (unsigned)i / s;
        index_[d] = (unsigned)i - q * s;
        i = q;
      } else {
        index_[d] = i % shape_[d];
        i /= shape_[d];
      }
    }
    index_[0] = i;
  }

 private:
  ptrdiff_t size_, shape_[ndim_ > 0 ? ndim_ : 1], index_[ndim_ > 0 ? ndim_ : 1];
};
