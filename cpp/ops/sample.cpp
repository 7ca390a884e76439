// logits_sample and sample: the same draw of each row, fed by the projection and by given logits.
#include "ops/sample.hpp"

#include <numeric>

#include "consumers/sample.hpp"
#include "core/read.hpp"
#include "dispatch/tables.hpp"

namespace lmhead {
namespace {

// What the rows of a block may take, unless one takes more.
constexpr int64_t kKeptBytes = 64 * 1024 * 1024;

template <class Candidate>
RowFault logits_sample_as(const Rows& hidden, const Rows& weight, const HeadOptions& head, const Allowed& allowed, int64_t n_ids,
                          const SampleOptions& options, const SampleTarget& out, int threads) {
  using T = typename Candidate::T;
  const KernelTable& kernels = table();
  // A fold keeps at least 16 rows.
  const int64_t most_rows = std::max<int64_t>(1, kKeptBytes / (n_ids * int64_t(sizeof(T)) + 1));
  const auto keeps_row = [n_ids](const SampleRow& row) { return Sampling<Candidate>::keeps_row(row, n_ids); };
  if (most_rows < 16 && hidden.n_rows > most_rows && std::any_of(options.rows.begin(), options.rows.end(), keeps_row)) {
    RowFault first_fault;
    for (int64_t first = 0; first < hidden.n_rows; first += most_rows) {
      const int64_t n = std::min(most_rows, hidden.n_rows - first);
      std::vector<int64_t> rows(static_cast<size_t>(n));
      std::iota(rows.begin(), rows.end(), first);
      const RowFault found = logits_sample_as<Candidate>(chosen_rows(hidden, rows, 0, n), weight, head, allowed.some_rows(rows), n_ids,
                                                         options.some_rows(rows), out.from<T>(first, options.top_n), threads);
      if (found.fault != Fault::none && first_fault.fault == Fault::none) first_fault = {first + found.row, found.fault};
    }
    return first_fault;
  }
  const Projection projection(kernels, hidden, weight);
  Sampling<Candidate> sampling(kernels, options, allowed, n_ids, out, threads);
  fold<T>(kernels, projection, Adjust<T>{static_cast<const T*>(head.bias), head.softcap, head.scale}, sampling, threads, allowed);
  return sampling.first_fault();
}

// Ids a worker takes of a row at a time: 64 KiB of float32, some 10 microseconds.
constexpr int64_t kIdsPerTask = 1 << 14;
// Elements below which one thread is done before a second has woken.
constexpr double kSerialElements = 1 << 15;
// Rows whose states are held at once: some hundred bytes each, and enough elements that sharing them out costs little.
constexpr int64_t kLeastRows = 64, kMostRows = 4096, kElementsPerBlock = 1 << 20;

template <class Candidate>
RowFault sample_as(const Rows& logits, const Allowed& allowed, const SampleOptions& options, const SampleTarget& out, int threads) {
  using T = typename Candidate::T;
  const KernelTable& kernels = table();
  if (double(logits.n_rows) * double(logits.width) < kSerialElements) threads = 1;
  const Reader<T> reader(kernels, logits);
  Sampling<Candidate> sampling(kernels, options, allowed, logits.width, out, threads);
  struct Scratch {
    Buffer<T> run;
    Buffer<char> temporary;
  };
  std::vector<Scratch> scratch(static_cast<size_t>(threads));
  const int64_t by_width = std::clamp(kElementsPerBlock / (logits.width + 1), kLeastRows, kMostRows);
  const int64_t rows_per_block = std::max<int64_t>(1, std::min(by_width, kKeptBytes / sampling.bytes_per_row()));
  for (int64_t first = 0; first < logits.n_rows; first += rows_per_block) {
    const int64_t n_rows = std::min(rows_per_block, logits.n_rows - first), n_runs = ceil_div(logits.width, kIdsPerTask);
    sampling.begin(first, n_rows);
    for (int64_t row = first; row < first + n_rows; ++row)
      if (allowed.all() && reader.in_place(row)) sampling.lies_at(row, reader.row(row));
    run_tasks(threads, n_rows * n_runs, [&](int worker, int64_t task) {
      Scratch& mine = scratch[static_cast<size_t>(worker)];
      const int64_t row = first + task / n_runs, id = task % n_runs * kIdsPerTask, n = std::min(kIdsPerTask, logits.width - id);
      if (reader.in_place(row) && allowed.all()) return sampling.stretch(worker, row, reader.row(row) + id, n, id);
      T* run = mine.run.reserve(n);
      copy_row(kernels, logits, row, id, n, RowLayout::wide, run, mine.temporary);
      allowed.clear(row, run, id, n);
      sampling.stretch(worker, row, run, n, id);
    });
    sampling.finish(first, n_rows);
  }
  return sampling.first_fault();
}

}  // namespace

RowFault logits_sample(const Rows& hidden, const Rows& weight, const HeadOptions& head, const Allowed& allowed, const SampleOptions& options,
                       const SampleTarget& out, int threads) {
  const int64_t n_ids = allowed.all() ? weight.n_rows : allowed.n_ids();
  const auto draw = weight.dtype == DType::float64 ? logits_sample_as<LongCandidate<double>>
                    : n_ids < kShortIds            ? logits_sample_as<ShortCandidate>
                                                   : logits_sample_as<LongCandidate<float>>;
  return draw(hidden, weight, head, allowed, n_ids, options, out, threads);
}

SampleOptions SampleOptions::some_rows(const std::vector<int64_t>& wanted) const {
  SampleOptions some;
  some.logprobs = logprobs;
  some.top_n = top_n;
  if (!first_edit.empty()) some.first_edit.push_back(0);
  for (const int64_t row : wanted) {
    some.rows.push_back(rows[static_cast<size_t>(row)]);
    if (first_edit.empty()) continue;
    const RowEdits of_row = edits_of(row);
    some.edits.insert(some.edits.end(), of_row.first, of_row.last);
    some.first_edit.push_back(static_cast<int64_t>(some.edits.size()));
  }
  return some;
}

namespace {

// Of the best logits of a row, how many its draw is made from; 0: from more than a screen is good for. What min_p keeps is seldom more.
int64_t n_screened(const SampleRow& row, int64_t n_ids) {
  const Filters& filters = row.filters;
  if (row.greedy() || filters.has_top_k(n_ids)) {
    const int64_t k = n_best(filters, n_ids);
    return k <= kScreenedTopK ? k : 0;
  }
  const bool first = filters.order == FilterOrder::vllm || (filters.top_p >= 1 && (filters.order == FilterOrder::hf || filters.typical_p >= 1));
  return filters.min_p > 0 && first ? std::min(kScreenedTopK, n_ids) : 0;
}

}  // namespace

bool suits_screen(const SampleOptions& options, int64_t n_ids) {
  if (options.logprobs != Logprobs::none || !options.edits.empty() || n_ids >= kShortIds) return false;
  return std::all_of(options.rows.begin(), options.rows.end(), [n_ids](const SampleRow& row) { return n_screened(row, n_ids) > 0; });
}

RowFault screened_sample(const Screen& screen, const Rows& hidden, const Rows& weight, const HeadOptions& head, const SampleOptions& options,
                         const SampleTarget& out, int threads) {
  int64_t k = 0;
  for (const SampleRow& row : options.rows) k = std::max(k, n_screened(row, weight.n_rows));
  if (!worth_a_screen(hidden, weight, head, k)) return logits_sample(hidden, weight, head, {}, options, out, threads);
  Buffer<float> values(hidden.n_rows * k);
  Buffer<int64_t> ids(hidden.n_rows * k), rescored(hidden.n_rows);
  screened_top_k(screen, hidden, weight, head, {}, {reinterpret_cast<char*>(values.get()), ids.get(), k}, rescored.get(), threads);
  RowFault first;
  const auto note = [&first](int64_t row, Fault fault) {
    if (fault != Fault::none && (first.fault == Fault::none || row < first.row)) first = {row, fault};
  };
  std::vector<int64_t> left;
  RowDraw<float> draw(table());
  for (int64_t row = 0; row < hidden.n_rows; ++row) {
    ShortCandidate list[kScreenedTopK];
    const SampleRow& wanted = options.rows[static_cast<size_t>(row)];
    const int64_t n = n_screened(wanted, weight.n_rows);
    for (int64_t i = 0; i < n; ++i) list[i] = ShortCandidate(values[row * k + i], ids[row * k + i]);
    if (!draw.from(list, n, static_cast<const float*>(nullptr), weight.n_rows, nullptr, wanted)) {
      left.push_back(row);
      continue;
    }
    note(row, draw.fault());
    out.token[row] = draw.winner().id;
  }
  if (left.empty()) return first;
  if (rows_go_together(hidden, weight)) return logits_sample(hidden, weight, head, {}, options, out, threads);
  const auto n_left = static_cast<int64_t>(left.size());
  Buffer<int64_t> tokens(n_left);
  SampleTarget some;
  some.token = tokens.get();
  const RowFault found = logits_sample(chosen_rows(hidden, left, 0, n_left), weight, head, {}, options.some_rows(left), some, threads);
  if (found.fault != Fault::none) note(left[static_cast<size_t>(found.row)], found.fault);
  for (int64_t i = 0; i < n_left; ++i) out.token[left[static_cast<size_t>(i)]] = tokens[i];
  return first;
}

RowFault sample(const Rows& logits, const Allowed& allowed, const SampleOptions& options, const SampleTarget& out, int threads) {
  const auto draw = logits.dtype == DType::float64  ? sample_as<LongCandidate<double>>
                    : logits.width < kShortIds ? sample_as<ShortCandidate>
                                               : sample_as<LongCandidate<float>>;
  return draw(logits, allowed, options, out, threads);
}

}  // namespace lmhead
