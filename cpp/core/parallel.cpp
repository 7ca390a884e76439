// The one file with threads. LMHEAD_OPENMP picks OpenMP; without it std::thread (which ThreadSanitizer can follow).
#include "core/parallel.hpp"

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <mutex>
#include <string>

#ifdef LMHEAD_OPENMP
#include <omp.h>
#else
#include <thread>
#include <vector>
#endif
#ifdef __linux__
#include <pthread.h>
#include <sched.h>
#endif

namespace lmhead {
namespace {

std::atomic<bool> forked_child{false};
std::atomic<int> chosen_threads{0};

// libgomp's pool does not survive fork(): a parallel region in the child waits for threads that are not there.
struct ForkWatch {
  ForkWatch() {
#ifdef __linux__
    pthread_atfork(nullptr, nullptr, [] { forked_child.store(true, std::memory_order_relaxed); });
#endif
  }
} fork_watch;

int affinity_threads() {
#ifdef __linux__
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return CPU_COUNT(&set);
#endif
  return kMaxThreads;
}

// A container's quota in whole CPUs, rounded up: more threads than that only get throttled.
int quota_threads() {
  double quota = -1, period = 0;
  std::string first;
  if (std::ifstream v2("/sys/fs/cgroup/cpu.max"); v2 >> first >> period) {
    if (first != "max") quota = std::strtod(first.c_str(), nullptr);
  } else {
    std::ifstream v1_quota("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"), v1_period("/sys/fs/cgroup/cpu/cpu.cfs_period_us");
    if (!(v1_quota >> quota && v1_period >> period)) quota = -1;
  }
  if (quota <= 0 || period <= 0) return kMaxThreads;
  const double cpus = quota / period;
  return cpus < 1 ? 1 : cpus > kMaxThreads ? kMaxThreads : static_cast<int>(cpus + 0.999);
}

int hardware_threads() {
#ifdef LMHEAD_OPENMP
  return omp_get_max_threads();
#else
  const unsigned n = std::thread::hardware_concurrency();
  return n > 0 ? static_cast<int>(n) : 1;
#endif
}

}  // namespace

const char* parallel_backend() {
#ifdef LMHEAD_OPENMP
  return "openmp";
#else
  return "threads";
#endif
}

int available_threads() {
  static const int limit = std::min(affinity_threads(), quota_threads());
  return std::max(1, std::min({hardware_threads(), limit, kMaxThreads}));
}

int default_threads() {
  const int chosen = chosen_threads.load(std::memory_order_relaxed);
  return chosen > 0 ? chosen : available_threads();
}

void set_default_threads(int threads) { chosen_threads.store(threads, std::memory_order_relaxed); }

void run_workers(int threads, void (*run)(void* context, int worker), void* context) {
  std::exception_ptr failure;
  std::mutex failure_lock;
  const auto guarded = [&](int worker) {
    try {
      run(context, worker);
    } catch (...) {
      const std::lock_guard<std::mutex> hold(failure_lock);
      if (!failure) failure = std::current_exception();
    }
  };
  if (threads <= 1 || forked_child.load(std::memory_order_relaxed)) {
    for (int worker = 0; worker < threads; ++worker) guarded(worker);
  } else {
#ifdef LMHEAD_OPENMP
    // The team may come out smaller than asked for (thread limits, nested regions): every worker number is run all the same.
#pragma omp parallel num_threads(threads)
    for (int worker = omp_get_thread_num(); worker < threads; worker += omp_get_num_threads()) guarded(worker);
#else
    std::vector<std::thread> others;
    others.reserve(static_cast<size_t>(threads - 1));
    int started = 1;
    try {
      for (; started < threads; ++started) others.emplace_back(guarded, started);
    } catch (...) {  // no more threads, or no memory for one, to be had: this one does their share
    }
    guarded(0);
    for (int worker = started; worker < threads; ++worker) guarded(worker);
    for (std::thread& other : others) other.join();
#endif
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace lmhead
