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
// Smaller ones are not worth a call of the system.
constexpr size_t kMappedBytes = 128 * 1024;

constexpr int64_t round_up(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }
constexpr int64_t ceil_div(int64_t n, int64_t by) { return (n + by - 1) / by; }

// Where memory comes from, and what becomes of it.
enum class Lifetime {
  kept,      // the allocator keeps it for the next call, which then has no page faults
  returned,  // the system has it back at once: for what is large and goes before something else comes
};

template <class T, Lifetime lifetime = Lifetime::kept>
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
      data_ = allocate(count);
      count_ = count;
    }
    return data_.get();
  }

 private:
  static_assert(std::is_trivially_destructible<T>::value, "elements are never destroyed one by one");
  struct Free {
    size_t mapped = 0;
    void operator()(T* p) const {
#ifdef __linux__
      if (mapped) {
        munmap(p, mapped);
        return;
      }
#endif
      std::free(p);
    }
  };
  using Owner = std::unique_ptr<T, Free>;

  static Owner allocate(int64_t count) {
    if (count <= 0) return {};
    if (static_cast<uint64_t>(count) > static_cast<uint64_t>(std::numeric_limits<ptrdiff_t>::max() - ptrdiff_t(kHugePage)) / sizeof(T)) throw std::bad_alloc();
    const size_t bytes = static_cast<size_t>(round_up(static_cast<int64_t>(static_cast<size_t>(count) * sizeof(T)), kCacheLine));
    const bool huge = bytes >= kHugeBytes;
#if defined(__linux__) && !defined(__SANITIZE_ADDRESS__)
    if (lifetime == Lifetime::returned && !huge && bytes >= kMappedBytes) {
      void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (p == MAP_FAILED) throw std::bad_alloc();
      return Owner(static_cast<T*>(p), Free{bytes});
    }
#endif
    const int64_t alignment = huge ? kHugePage : kCacheLine;
    const int64_t whole = round_up(static_cast<int64_t>(bytes), alignment);  // as C11 asks
    void* p = std::aligned_alloc(static_cast<size_t>(alignment), static_cast<size_t>(whole));
    if (!p) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE
    if (huge) madvise(p, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);  // advice: what becomes of it does not matter
#endif
    return Owner(static_cast<T*>(p), Free{});
  }

  Owner data_;
  int64_t count_ = 0;
};

template <class T> using ReturnedBuffer = Buffer<T, Lifetime::returned>;

}  // namespace lmhead
