// Scratch memory: on the heap, aligned to a cache line, uninitialised, gone with its owner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <memory>
#include <new>
#include <type_traits>

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace lmhead {

constexpr size_t kCacheLine = 64;
// Scratch of several huge pages asks for them: first touches then cost a fault for every 2 MiB instead of every 4 KiB, which is
// 2 % of a training step's time for its chunk of logits.
constexpr size_t kHugePage = size_t(2) << 20, kHugeBytes = 4 * kHugePage;

constexpr int64_t round_up(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }
constexpr int64_t ceil_div(int64_t n, int64_t by) { return (n + by - 1) / by; }

template <class T>
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(int64_t count) : data_(allocate(count)), count_(count) {}
  T* get() const { return data_.get(); }
  T& operator[](int64_t i) const { return data_.get()[i]; }
  // At least `count` elements, contents lost.
  T* reserve(int64_t count) {
    if (count > count_) {
      data_.reset();
      data_.reset(allocate(count));
      count_ = count;
    }
    return data_.get();
  }

 private:
  static_assert(std::is_trivially_destructible<T>::value, "elements are never destroyed one by one");
  struct Free { void operator()(T* p) const { std::free(p); } };
  static T* allocate(int64_t count) {
    if (count <= 0) return nullptr;
    if (static_cast<uint64_t>(count) > static_cast<uint64_t>(std::numeric_limits<ptrdiff_t>::max()) / sizeof(T) - 1) throw std::bad_alloc();
    const size_t bytes = static_cast<size_t>(round_up(static_cast<int64_t>(static_cast<size_t>(count) * sizeof(T)), kCacheLine));
    const bool huge = bytes >= kHugeBytes;
    void* p = std::aligned_alloc(huge ? kHugePage : kCacheLine, bytes);
    if (!p) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE
    if (huge) madvise(p, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);  // advice: what becomes of it does not matter
#endif
    return static_cast<T*>(p);
  }
  std::unique_ptr<T, Free> data_;
  int64_t count_ = 0;
};

}  // namespace lmhead
