// logits_topk by way of a screen: the k best estimates are computed exactly, the worst of them is the threshold, and every other
// id whose upper end reaches it is computed too. The lists are those of logits_top_k, bit for bit.
#include <cmath>
#include <limits>

#include "core/screened_rows.hpp"
#include "dispatch/tables.hpp"
#include "ops/ops.hpp"

namespace lmhead {
namespace {

// Estimates and ends of a block of rows.
constexpr int64_t kBlockBytes = 32 * 1024 * 1024;
// Ids of one task of exact logits.
constexpr int64_t kIdsPerTask = 32;
// More than this part of the ids: reading them one by one costs what the full pass does beyond the scan that has been paid for.
constexpr int64_t kWorthwhile = 4;

// Up to how many hidden rows a scan takes less time than the full pass. A core reads about 6 bytes a cycle of its share of the
// memory and has 16 FMAs of float32 or 64 of bfloat16 pairs. With AVX-512 a scan multiplies 32 weights a cycle and is ahead of float32 for any
// number of rows. Else it is little ahead, and only where memory is what the full pass waits for.
int64_t most_rows(const KernelTable& table, const Rows& hidden, const Rows& weight) {
  const bool dot = hidden.dtype == DType::bfloat16 && weight.dtype == DType::bfloat16 && table.project[static_cast<int>(RowKind::bf16_dot)];
  if (table.screen.outruns_fma) return dot ? 8 : std::numeric_limits<int64_t>::max();
  return item_size(weight.dtype) == 4 ? 8 : 2;
}

template <class Candidate>
class ScreenedTopK {
 public:
  ScreenedTopK(const Screen& screen, const Rows& hidden, const Rows& weight, const HeadOptions& options, const TopKTarget& out,
               int64_t* rescored, int threads)
      : kernels_(table()), n_ids_(weight.n_rows), padded_ids_(screen.padded_ids()), n_rows_(hidden.n_rows),
        projection_(kernels_, hidden, weight), screened_(kernels_, screen, hidden, options.scale < 0),
        adjust_{static_cast<const float*>(options.bias), options.softcap, options.scale}, out_(out), rescored_(rescored), threads_(threads),
        scratch_(static_cast<size_t>(threads)) {}

  // Returns the rows that are left to the full pass.
  std::vector<int64_t> run() {
    const int64_t by_bytes = kBlockBytes / (2 * 4 * padded_ids_);
    const int64_t per_block = std::max<int64_t>(1, std::min(kScreenedRows, by_bytes));
    for (int64_t row = 0; row < n_rows_; row += per_block) run_block(row, std::min(per_block, n_rows_ - row));
    return std::move(full_);
  }

 private:
  struct Row {
    int64_t index;             // of the call's rows
    std::vector<int64_t> ids;  // whose logits are computed, in two ascending runs
    std::vector<float> logits;
    bool full = false;
  };
  struct Scratch {
    ProjectionScratch projection;
    Buffer<float> bias;
  };

  void run_block(int64_t first_row, int64_t n) {
    screened_.prepare(first_row, n);
    rows_.clear();
    char* prepared = prepared_.reserve(n * projection_.hidden_stride());
    for (int64_t row = first_row, r = 0; row < first_row + n; ++row) {
      if (r == screened_.size() || screened_.index(r) != row) {
        full_.push_back(row);
        continue;
      }
      projection_.prepare_row(row, prepared + r++ * projection_.hidden_stride(), scratch_[0].projection.temporary);
      rows_.push_back({row, {}, {}});
    }
    if (rows_.empty()) return;
    scan();
    compute_logits(0);
    const float* ends = scores_.get() + screened_.size() * padded_ids_;
    run_tasks(serial(double(n_ids_)) ? 1 : threads_, screened_.size(), [&](int, int64_t r) {
      find_survivors(rows_[static_cast<size_t>(r)], ends + r * padded_ids_);
    });
    compute_logits(out_.k);
    for (Row& row : rows_) finish(row);
  }

  bool serial(double work_per_row) const { return double(rows_.size()) * work_per_row < kSerialWork; }

  // Estimates and ends of every id, adjusted; the k best estimates become the first ids of each row.
  void scan() {
    const int64_t k = out_.k, n_rows = screened_.size();
    float* estimates = scores_.reserve(2 * n_rows * padded_ids_);
    float* ends = estimates + n_rows * padded_ids_;
    float* values = values_.reserve(n_rows * k);
    int64_t* indices = indices_.reserve(n_rows * k);
    const TopKTarget target{reinterpret_cast<char*>(values), indices, k};
    const int threads = serial(double(n_ids_) * double(projection_.width())) ? 1 : threads_;
    TopK<Candidate> best(kernels_, target, threads);
    best.begin(0, n_rows);
    screened_.scan(estimates, ends, padded_ids_, threads, [&](int worker, int64_t id, int64_t n_ids) {
      const Tile<float> tile{estimates + id, padded_ids_, 0, n_rows, id, n_ids};
      adjust_(kernels_, tile);
      adjust_(kernels_, Tile<float>{ends + id, padded_ids_, 0, n_rows, id, n_ids});
      best.tile(worker, tile);
    });
    best.finish(0, n_rows);
    for (int64_t r = 0; r < n_rows; ++r) {
      std::vector<int64_t>& ids = rows_[static_cast<size_t>(r)].ids;
      ids.assign(indices + r * k, indices + (r + 1) * k);
      std::sort(ids.begin(), ids.end());
    }
  }

  // Exact logits of every row's ids from place `first` on.
  void compute_logits(int64_t first) {
    std::vector<std::pair<int64_t, int64_t>> tasks;
    double work = 0;
    for (size_t r = 0; r < rows_.size(); ++r) {
      if (rows_[r].full) continue;
      const int64_t n = static_cast<int64_t>(rows_[r].ids.size());
      rows_[r].logits.resize(static_cast<size_t>(n));
      for (int64_t at = first; at < n; at += kIdsPerTask) tasks.emplace_back(static_cast<int64_t>(r), at);
      work += double(n - first) * double(projection_.width());
    }
    run_tasks(work < kSerialWork ? 1 : threads_, static_cast<int64_t>(tasks.size()), [&](int worker, int64_t task) {
      Scratch& mine = scratch_[static_cast<size_t>(worker)];
      const auto [r, at] = tasks[static_cast<size_t>(task)];
      Row& row = rows_[static_cast<size_t>(r)];
      const int64_t* ids = row.ids.data() + at;
      float* logits = row.logits.data() + at;
      const int64_t n = std::min(kIdsPerTask, static_cast<int64_t>(row.ids.size()) - at);
      projection_.project_list(prepared_.get() + r * projection_.hidden_stride(), ids, n, logits, mine.projection);
      adjust_.listed(ids, n, mine.bias.reserve(kIdsPerTask))(kernels_, Tile<float>{logits, n, r, 1, 0, n});
    });
  }

  // Adds every id whose end reaches the worst of the first k logits.
  void find_survivors(Row& row, const float* ends) const {
    const float bar = below_threshold(row);
    if (bar == -std::numeric_limits<float>::infinity()) {
      row.full = true;
      return;
    }
    const size_t most = static_cast<size_t>(n_ids_ / kWorthwhile);
    const int64_t k = out_.k;
    uint16_t places[kBlockIds];
    int64_t known = 0;
    for (int64_t id = 0; id < n_ids_; id += kBlockIds) {
      const int64_t found = kernels_.f32.select(ends + id, std::min(kBlockIds, n_ids_ - id), bar, places);
      for (int64_t i = 0; i < found; ++i) {
        const int64_t candidate = id + places[i];
        while (known < k && row.ids[static_cast<size_t>(known)] < candidate) ++known;
        if (known < k && row.ids[static_cast<size_t>(known)] == candidate) continue;
        row.ids.push_back(candidate);
      }
      if (row.ids.size() > most) {
        row.full = true;
        return;
      }
    }
  }

  // The greatest number that an end below the threshold can be; NaN ends pass every one of them. A threshold of NaN is reached by
  // NaN alone.
  float below_threshold(const Row& row) const {
    constexpr float infinity = std::numeric_limits<float>::infinity();
    Candidate worst(row.logits[0], row.ids[0]);
    for (size_t i = 1; i < row.logits.size(); ++i) {
      const Candidate other(row.logits[i], row.ids[i]);
      if (worst.better(other)) worst = other;
    }
    const float threshold = worst.value;
    if (threshold != threshold) return infinity;
    if (adjust_.softcap == 0) return std::nextafter(threshold, -infinity);
    const double slack = kAdjustSlack * std::fabs(double(threshold)) + 4 * double(std::numeric_limits<float>::denorm_min());
    return std::nextafter(static_cast<float>(double(threshold) - slack), -infinity);
  }

  void finish(Row& row) {
    if (row.full) {
      full_.push_back(row.index);
      return;
    }
    std::vector<Candidate> candidates(row.ids.size());
    for (size_t i = 0; i < candidates.size(); ++i) candidates[i] = Candidate(row.logits[i], row.ids[i]);
    const auto is_better = [](const Candidate& a, const Candidate& b) { return a.better(b); };
    std::partial_sort(candidates.begin(), candidates.begin() + out_.k, candidates.end(), is_better);
    for (int64_t i = 0; i < out_.k; ++i) {
      reinterpret_cast<float*>(out_.values)[row.index * out_.k + i] = candidates[static_cast<size_t>(i)].value;
      out_.indices[row.index * out_.k + i] = candidates[static_cast<size_t>(i)].id();
    }
    rescored_[row.index] = static_cast<int64_t>(candidates.size());
  }

  const KernelTable& kernels_;
  const int64_t n_ids_, padded_ids_, n_rows_;
  const Projection projection_;
  ScreenedRows screened_;
  const Adjust<float> adjust_;
  const TopKTarget& out_;
  int64_t* rescored_;
  const int threads_;
  std::vector<Scratch> scratch_;  // of each worker
  std::vector<Row> rows_;         // of the block
  std::vector<int64_t> full_;
  Buffer<char> prepared_;
  // Estimates and ends, [rows of the block][padded_ids_] each: one piece, which the allocator keeps for the next call where it would
  // give two back to the system.
  Buffer<float> scores_;
  Buffer<float> values_;            // of the best estimates, and their ids
  Buffer<int64_t> indices_;
};

// Some rows by the full pass.
void full_pass(const std::vector<int64_t>& rows, const Rows& hidden, const Rows& weight, const HeadOptions& options, const TopKTarget& out,
               int64_t* rescored, int threads) {
  if (rows.empty()) return;
  const Rows some = chosen_rows(hidden, rows, 0, static_cast<int64_t>(rows.size()));
  Buffer<float> values(some.n_rows * out.k);
  Buffer<int64_t> indices(some.n_rows * out.k);
  logits_top_k(some, weight, options, {}, {reinterpret_cast<char*>(values.get()), indices.get(), out.k}, threads);
  for (int64_t i = 0; i < some.n_rows; ++i) {
    const int64_t row = rows[static_cast<size_t>(i)];
    std::copy(values.get() + i * out.k, values.get() + (i + 1) * out.k, reinterpret_cast<float*>(out.values) + row * out.k);
    std::copy(indices.get() + i * out.k, indices.get() + (i + 1) * out.k, out.indices + row * out.k);
    rescored[row] = weight.n_rows;
  }
}

}  // namespace

bool worth_a_screen(const Rows& hidden, const Rows& weight, const HeadOptions& options, int64_t k) {
  // A scale of 0 makes all logits equal.
  return weight.width > 0 && options.scale != 0 && k <= weight.n_rows / kWorthwhile && hidden.n_rows <= most_rows(table(), hidden, weight);
}

bool rows_go_together(const Rows& hidden, const Rows& weight) {
  return hidden.dtype == DType::bfloat16 && weight.dtype == DType::bfloat16 && !weight.contiguous();
}

void screened_top_k(const Screen& screen, const Rows& hidden, const Rows& weight, const HeadOptions& options, const Allowed& allowed,
                    const TopKTarget& out, int64_t* rescored, int threads) {
  if (out.k == 0) return std::fill(rescored, rescored + hidden.n_rows, int64_t(0)), void();
  if (!allowed.all()) {
    logits_top_k(hidden, weight, options, allowed, out, threads);
    for (int64_t row = 0; row < hidden.n_rows; ++row) rescored[row] = allowed.count(row);
    return;
  }
  std::vector<int64_t> left;
  const bool screened = worth_a_screen(hidden, weight, options, out.k);
  if (screened) {
    if (weight.n_rows < kShortIds) left = ScreenedTopK<ShortCandidate>(screen, hidden, weight, options, out, rescored, threads).run();
    else left = ScreenedTopK<LongCandidate<float>>(screen, hidden, weight, options, out, rescored, threads).run();
  }
  if (!screened || static_cast<int64_t>(left.size()) == hidden.n_rows || (rows_go_together(hidden, weight) && !left.empty())) {
    logits_top_k(hidden, weight, options, {}, out, threads);
    std::fill(rescored, rescored + hidden.n_rows, weight.n_rows);
    return;
  }
  full_pass(left, hidden, weight, options, out, rescored, threads);
}

}  // namespace lmhead
