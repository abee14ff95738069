// One sensor's part of the causal attention, for native_attention.cpp.
//
// The keys of the sensors that it looks at are gathered once, as rows along the keys, (H*C, keys); then its queries are
// answered two at a time, so that they share what is read, each in rows along the keys. So every inner loop runs over
// contiguous keys, and nothing of the size pairs x channels is ever stored. The backward pass does the forward pass
// again.

#pragma once

#include <algorithm>

#include "native_vectors.hpp"

// Mirrored, field by field, in native.py. Pointers to what is not there are null.
struct Problem {
    int64_t batch, sensors, steps, heads, channels, parts, threads;
    // Sensors that i looks at: source[start[i]] to source[start[i + 1]]; order: sensors by falling number of these.
    const int32_t *start, *source, *order;
    // (B, N, T, H, C), but what belongs to keys (B, N, H, C, T); gates (B, N, T); relative_bias (H, T, T).
    const void *query, *key, *message_query, *message_key, *gate_query, *gate_key, *relative_bias;
    void *out, *total;  // (B, N, T, H, C), (B, N, T)
    double *rho_sum;    // (B, N)
    const void *d_out, *d_total;
    // Gradients; (parts, B, N, H, C, T), (parts, B, N, T) and (parts, B, H, T, T) where there are parts.
    void *d_query, *d_message_query, *d_gate_query, *d_key_parts, *d_message_key_parts, *d_gate_key_parts,
        *d_relative_bias_parts;
    double d_rho_sum, temperature;
    int64_t first_window;
    uint32_t noise_key[2];
    int32_t noisy, hard, null, constrained;
};

constexpr double ABSENT = -1e30, SHUT_CAP = 10.0;  // as in attention.py

template <class Real> class Sensor {
    using V = typename VectorOf<Real>::type;
    static constexpr int64_t W = lanes_of<V>;
    static constexpr int Q = 2;  // queries at a time

    struct Query {
        int64_t step, count;  // count: how many of the keys, from the first on, it may look at
        bool real;            // the second query of the last pair need not be
        // Rows along the keys. gate: its logarithm where gates are soft and weights sum to 1; share: the weight before
        // its gate; d_weight: becomes the gradient of the score.
        Real *gate, *slope, *rho_slope, *d_gate, *share, *weight, *d_weight;
    };
    static constexpr int64_t QUERY_ROWS = 7;

    const Problem &p_;
    const int64_t T, H, C, D;
    const bool gated_, logarithmic_, sums_open_;
    int64_t b_ = 0, i_ = 0, degree_ = 0;
    int64_t width_ = 0, span_ = 0;  // length of the rows, and how much of them the present queries need
    const int32_t *looked_at_ = nullptr;
    Real *key_, *message_, *d_key_, *d_message_;  // (D, width)
    Real *gate_key_, *d_gate_key_;
    uint32_t *column_;
    Query queries_[Q];

  public:
    static int64_t room(const Problem &p, int64_t most_keys) {
        return padded(most_keys) * (4 * p.heads * p.channels + 3 + Q * QUERY_ROWS);
    }

    Sensor(const Problem &p, Arena<Real> &arena, int64_t most_keys)
        : p_(p), T(p.steps), H(p.heads), C(p.channels), D(p.heads * p.channels), gated_(p.gate_query != nullptr),
          logarithmic_(gated_ && !p.hard && !p.null), sums_open_(gated_ && p.hard && !p.null) {
        const int64_t most = padded(most_keys);
        for (Real **rows : {&key_, &message_, &d_key_, &d_message_}) *rows = arena.take(D * most);
        for (Real **row : {&gate_key_, &d_gate_key_}) *row = arena.take(most);
        column_ = reinterpret_cast<uint32_t *>(arena.take(most));
        for (Query &q : queries_)
            for (Real **row : {&q.gate, &q.slope, &q.rho_slope, &q.d_gate, &q.share, &q.weight, &q.d_weight})
                *row = arena.take(most);
        if (!gated_ || logarithmic_)
            for (Query &q : queries_) q.weight = q.share;
    }

    void forward(int64_t b, int64_t i) {
        look(b, i);
        double rho_sum = 0;
        std::memset(mine(p_.out, D), 0, sizeof(Real) * size_t(T * D));
        if (p_.total) std::memset(mine(p_.total, 1), 0, sizeof(Real) * size_t(T));
        for (int64_t t = 0; degree_ > 0 && t < T; t += Q) {
            begin(t);
            for (Query &q : queries_) rho_sum += draw_gates(q, false);
            for (int64_t h = 0; h < H; ++h) {
                score(h);
                for (Query &q : queries_) {
                    const Real sum = weigh(q);
                    if (p_.total && q.real) mine(p_.total, 1)[q.step] += sum / Real(H);
                }
                send_messages(h);
            }
        }
        p_.rho_sum[b * p_.sensors + i] = rho_sum;
    }

    void backward(int64_t b, int64_t i, int64_t part) {
        look(b, i);
        std::memset(mine(p_.d_query, D), 0, sizeof(Real) * size_t(T * D));
        if (p_.message_query) std::memset(mine(p_.d_message_query, D), 0, sizeof(Real) * size_t(T * D));
        if (gated_) std::memset(mine(p_.d_gate_query, 1), 0, sizeof(Real) * size_t(T));
        if (degree_ == 0) return;
        for (Real *rows : {d_key_, d_message_}) std::fill(rows, rows + D * width_, Real(0));
        std::fill(d_gate_key_, d_gate_key_ + width_, Real(0));
        for (int64_t t = 0; t < T; t += Q) {
            begin(t);
            for (Query &q : queries_) {
                draw_gates(q, true);
                std::fill(q.d_gate, q.d_gate + span_, Real(0));
            }
            for (int64_t h = 0; h < H; ++h) {
                score(h);
                for (Query &q : queries_) {
                    weigh(q);
                    const Real d_total = p_.d_total && q.real ? mine(p_.d_total, 1)[q.step] / Real(H) : Real(0);
                    std::fill(q.d_weight, q.d_weight + span_, d_total);
                }
                message_gradients(h);
                for (Query &q : queries_) weight_gradients(q, h, part);
                score_gradients(h);
            }
            if (gated_)
                for (Query &q : queries_) gate_gradients(q);
        }
        hand_over(part);
    }

  private:
    // What belongs to this sensor in a tensor (B, N, T, size).
    Real *mine(void *tensor, int64_t size) const {
        return static_cast<Real *>(tensor) + (b_ * p_.sensors + i_) * T * size;
    }
    const Real *mine(const void *tensor, int64_t size) const { return mine(const_cast<void *>(tensor), size); }

    // The same for one head of both queries, (B, N, T, H, C).
    struct OfQueries {
        Real *x[Q];
    };
    OfQueries of_queries(const void *tensor, int64_t h) const {
        OfQueries found = {};
        if (!tensor) return found;
        Real *const own = mine(const_cast<void *>(tensor), D) + h * C;
        for (int which = 0; which < Q; ++which) found.x[which] = own + queries_[which].step * D;
        return found;
    }
    void set(const OfQueries &to, int64_t c, const V sums[Q], const Real *factors = nullptr) const {
        for (int which = 0; which < Q; ++which)
            if (queries_[which].real)
                to.x[which][c] = sum_of_lanes(sums[which]) * (factors ? factors[which] : Real(1));
    }

    // Keys lie sensor after sensor; where queries may only look at the past, step after step, so that what a query may
    // look at comes first. Calls copy(place in (rows, keys), place in (rows, T)) for sensor number e of the neighbours.
    template <class Copy> void each_key(int64_t e, int64_t rows, Copy copy) const {
        for (int64_t row = 0; row < rows; ++row)
            if (p_.constrained)
                for (int64_t t = 0; t < T; ++t) copy(row * width_ + t * degree_ + e, row * T + t);
            else
                for (int64_t t = 0; t < T; ++t) copy(row * width_ + e * T + t, row * T + t);
    }

    // (B, N, size, T) -> (size, width)
    void gather(const void *tensor, int64_t size, Real *rows) const {
        for (int64_t e = 0; e < degree_; ++e) {
            const Real *from = static_cast<const Real *>(tensor) + (b_ * p_.sensors + looked_at_[e]) * size * T;
            each_key(e, size, [=](int64_t here, int64_t there) { rows[here] = from[there]; });
        }
        for (int64_t row = 0; row < size; ++row)
            std::fill(rows + row * width_ + degree_ * T, rows + (row + 1) * width_, Real(0));
    }

    void look(int64_t b, int64_t i) {
        b_ = b, i_ = i;
        looked_at_ = p_.source + p_.start[i];
        degree_ = p_.start[i + 1] - p_.start[i];
        width_ = padded(degree_ * T);
        gather(p_.key, D, key_);
        gather(p_.message_key, D, message_);
        if (gated_) gather(p_.gate_key, 1, gate_key_);
        std::fill(column_, column_ + width_, 0u);
        uint32_t *column = column_;
        for (int64_t e = 0; e < degree_; ++e) {
            const uint32_t first = uint32_t(looked_at_[e]) * uint32_t(T);
            each_key(e, 1, [=](int64_t here, int64_t t) { column[here] = (first + uint32_t(t)) * COLUMN_STEP; });
        }
    }

    void begin(int64_t t) {
        for (int64_t which = 0; which < Q; ++which) {
            Query &q = queries_[which];
            q.real = t + which < T;
            q.step = q.real ? t + which : T - 1;
            q.count = degree_ * (p_.constrained ? q.step + 1 : T);
        }
        span_ = padded(queries_[Q - 1].count);
    }

    // The gates of a query, for all its heads -> the sum of rho. Or the gates and their slopes.
    double draw_gates(Query &q, bool with_slopes) {
        if (!gated_) return 0;
        const Real own = mine(p_.gate_query, 1)[q.step], cold = p_.noisy ? Real(1 / p_.temperature) : Real(1);
        Real *gate = q.gate, *rho = q.rho_slope;
        if (p_.noisy) {
            const uint32_t window = uint32_t(p_.first_window) + uint32_t(b_);
            const uint32_t number = (window * uint32_t(p_.sensors) + uint32_t(i_)) * uint32_t(T) + uint32_t(q.step);
            const uint32_t row = mix(mix(number ^ p_.noise_key[0]) ^ p_.noise_key[1]);
            const uint32_t *column = column_;
            for (int64_t k = 0; k < span_; ++k) gate[k] = Real(int32_t(mix(row ^ column[k]) >> 9)) + Real(0.5);
        }
        for (int64_t k = 0; k < span_; k += W) {
            const V logit = own + load(gate_key_ + k);
            V noisy = logit;
            if (p_.noisy) {
                const V drawn = load(gate + k);
                noisy = (logit + logarithm(drawn / (Real(8388608) - drawn))) * cold;
            }
            store(rho + k, sigmoid(logit));
            if (with_slopes) {
                const V soft = sigmoid(noisy);
                store(q.slope + k, (logarithmic_ ? all<V>(cold) : soft * cold) * (1 - soft));
            }
            if (logarithmic_)
                store(gate + k, log_sigmoid(noisy));
            else if (p_.hard)
                store(gate + k, noisy > V{} ? all<V>(1) : V{});
            else
                store(gate + k, sigmoid(noisy));
        }
        std::fill(rho + q.count, rho + span_, Real(0));
        V sum{};
        for (int64_t k = 0; k < span_; k += W) {
            const V x = load(rho + k);
            sum += x;
            store(rho + k, x * (1 - x));
        }
        return q.real ? double(sum_of_lanes(sum)) : 0;
    }

    // The scores of both queries, with what their gates add to them, where their shares will be.
    void score(int64_t h) {
        const OfQueries query = of_queries(p_.query, h);
        const Real *key = key_ + h * C * width_;
        if (p_.relative_bias) spread_bias(h);
        for (int64_t k = 0; k < span_; k += W) {
            V sums[Q] = {};
            for (int which = 0; which < Q; ++which) {
                if (p_.relative_bias) sums[which] = load(queries_[which].share + k);
                if (logarithmic_) sums[which] += load(queries_[which].gate + k);
            }
            for (int64_t c = 0; c < C; ++c) {
                const V theirs = load(key + c * width_ + k);
                for (int which = 0; which < Q; ++which) sums[which] += query.x[which][c] * theirs;
            }
            for (int which = 0; which < Q; ++which) store(queries_[which].share + k, sums[which]);
        }
    }

    void spread_bias(int64_t h) {
        for (Query &q : queries_) {
            const Real *bias = static_cast<const Real *>(p_.relative_bias) + (h * T + q.step) * T;
            Real *share = q.share;
            std::fill(share, share + span_, Real(0));
            for (int64_t e = 0; e < degree_; ++e)
                each_key(e, 1, [=](int64_t here, int64_t t) { share[here] = bias[t]; });
        }
    }

    // Scores -> shares and weights; returns the sum of the weights.
    Real weigh(Query &q) {
        Real *share = q.share, *gate = q.gate;
        if (!q.real) {
            for (Real *row : {q.share, q.weight}) std::fill(row, row + span_, Real(0));
            return 0;
        }
        std::fill(share + q.count, share + span_, Real(ABSENT));
        V highest = all<V>(Real(ABSENT)), highest_open = highest;
        for (int64_t k = 0; k < span_; k += W) highest = at_least(load(share + k), highest);
        if (sums_open_)
            for (int64_t k = 0; k < span_; k += W)
                highest_open = at_least(load(gate + k) > V{} ? load(share + k) : all<V>(Real(ABSENT)), highest_open);
        // As `_hard_gated` in attention.py does where gates are hard; else there is nothing above the cap.
        const Real best = highest_lane(highest_open);
        const bool some_open = sums_open_ && best > Real(ABSENT / 2);
        const Real reference = some_open ? best : highest_lane(highest);
        V sum{}, sum_open{};
        for (int64_t k = 0; k < span_; k += W) {
            const V x = exponential(at_most(load(share + k) - reference, all<V>(Real(SHUT_CAP))));
            store(share + k, x);
            sum += x;
            if (some_open) sum_open += x * load(gate + k);
        }
        const Real scale = 1 / sum_of_lanes(some_open ? sum_open : sum);
        for (int64_t k = 0; k < span_; k += W) store(share + k, load(share + k) * scale);
        if (q.weight == share) return 1;
        V total{};
        for (int64_t k = 0; k < span_; k += W) {
            const V weight = load(share + k) * load(gate + k);
            store(q.weight + k, weight);
            total += weight;
        }
        return sum_of_lanes(total);
    }

    // out of one head of both queries.
    void send_messages(int64_t h) {
        const OfQueries out = of_queries(p_.out, h), own = of_queries(p_.message_query, h);
        const Real *weight[Q];
        for (int which = 0; which < Q; ++which) weight[which] = queries_[which].weight;
        for (int64_t c = 0; c < C; ++c) {
            const Real *message = message_ + (h * C + c) * width_;
            V sums[Q] = {};
            if (p_.message_query) {
                V mine[Q];
                for (int which = 0; which < Q; ++which) mine[which] = all<V>(own.x[which][c]);
                for (int64_t k = 0; k < span_; k += W) {
                    const V theirs = load(message + k);
                    for (int which = 0; which < Q; ++which)
                        sums[which] += load(weight[which] + k) * relu(mine[which] + theirs);
                }
            } else {
                for (int64_t k = 0; k < span_; k += W)
                    for (int which = 0; which < Q; ++which) sums[which] += load(weight[which] + k) * load(message + k);
            }
            set(out, c, sums);
        }
    }

    // d_weight, d_message_key and d_message_query of one head of both queries.
    void message_gradients(int64_t h) {
        const OfQueries d_outs = of_queries(p_.d_out, h), own = of_queries(p_.message_query, h);
        const OfQueries d_own = of_queries(p_.d_message_query, h);
        const Real *weight[Q];
        Real *d_weight[Q];
        for (int which = 0; which < Q; ++which) {
            weight[which] = queries_[which].weight;
            d_weight[which] = queries_[which].d_weight;
        }
        for (int64_t c = 0; c < C; ++c) {
            const Real *message = message_ + (h * C + c) * width_;
            Real *d_message = d_message_ + (h * C + c) * width_;
            Real d_out[Q];
            for (int which = 0; which < Q; ++which) d_out[which] = queries_[which].real ? d_outs.x[which][c] : Real(0);
            if (p_.message_query) {
                V mine[Q];
                for (int which = 0; which < Q; ++which) mine[which] = all<V>(own.x[which][c]);
                V sums[Q] = {};
                for (int64_t k = 0; k < span_; k += W) {
                    const V theirs = load(message + k);
                    V d_theirs = load(d_message + k);
                    for (int which = 0; which < Q; ++which) {
                        const V value = relu(mine[which] + theirs);
                        const V pull = value > V{} ? load(weight[which] + k) : V{};
                        sums[which] += pull;
                        d_theirs += d_out[which] * pull;
                        store(d_weight[which] + k, load(d_weight[which] + k) + d_out[which] * value);
                    }
                    store(d_message + k, d_theirs);
                }
                set(d_own, c, sums, d_out);
            } else {
                for (int64_t k = 0; k < span_; k += W) {
                    V d_theirs = load(d_message + k);
                    for (int which = 0; which < Q; ++which) {
                        d_theirs += d_out[which] * load(weight[which] + k);
                        store(d_weight[which] + k, load(d_weight[which] + k) + d_out[which] * load(message + k));
                    }
                    store(d_message + k, d_theirs);
                }
            }
        }
    }

    // d_weight -> the gradients of the gates, of the scores, in d_weight's place, and of the bias.
    void weight_gradients(Query &q, int64_t h, int64_t part) {
        Real *d_score = q.d_weight;
        V sum{};
        for (int64_t k = 0; k < span_; k += W) sum += load(q.weight + k) * load(q.d_weight + k);
        const Real mean = sum_of_lanes(sum);
        for (int64_t k = 0; k < span_; k += W) {
            const V share = load(q.share + k), weight = load(q.weight + k), d_weight = load(q.d_weight + k);
            const V d_gate = p_.null ? share * d_weight : share * (d_weight - mean);
            store(q.d_gate + k, load(q.d_gate + k) + d_gate);
            store(d_score + k, p_.null ? weight * d_weight - share * mean : weight * (d_weight - mean));
        }
        if (!p_.relative_bias || !q.real) return;
        Real *d_bias = static_cast<Real *>(p_.d_relative_bias_parts) + (part * p_.batch + b_) * H * T * T;
        d_bias += (h * T + q.step) * T;
        const int64_t count = q.count;
        for (int64_t e = 0; e < degree_; ++e)
            each_key(e, 1, [=](int64_t here, int64_t t) { d_bias[t] += here < count ? d_score[here] : Real(0); });
    }

    // d_query and d_key of one head of both queries.
    void score_gradients(int64_t h) {
        const OfQueries query = of_queries(p_.query, h), d_query = of_queries(p_.d_query, h);
        const Real *d_score[Q];
        for (int which = 0; which < Q; ++which) d_score[which] = queries_[which].d_weight;
        for (int64_t c = 0; c < C; ++c) {
            const Real *key = key_ + (h * C + c) * width_;
            Real *d_key = d_key_ + (h * C + c) * width_;
            Real own[Q];
            for (int which = 0; which < Q; ++which) own[which] = query.x[which][c];
            V sums[Q] = {};
            for (int64_t k = 0; k < span_; k += W) {
                V d_theirs = load(d_key + k);
                for (int which = 0; which < Q; ++which) {
                    sums[which] += load(d_score[which] + k) * load(key + k);
                    d_theirs += load(d_score[which] + k) * own[which];
                }
                store(d_key + k, d_theirs);
            }
            set(d_query, c, sums);
        }
    }

    void gate_gradients(Query &q) {
        if (!q.real) return;
        V sum{};
        for (int64_t k = 0; k < span_; k += W) {
            const V d_logit = load(q.d_gate + k) * load(q.slope + k) + load(q.rho_slope + k) * Real(p_.d_rho_sum);
            store(d_gate_key_ + k, load(d_gate_key_ + k) + d_logit);
            sum += d_logit;
        }
        mine(p_.d_gate_query, 1)[q.step] = sum_of_lanes(sum);
    }

    // (size, width) -> added to this part of (parts, B, N, size, T)
    void hand_over(const Real *rows, int64_t size, int64_t part, void *tensor) const {
        for (int64_t e = 0; e < degree_; ++e) {
            const int64_t place = (part * p_.batch + b_) * p_.sensors + looked_at_[e];
            Real *to = static_cast<Real *>(tensor) + place * size * T;
            each_key(e, size, [=](int64_t here, int64_t there) { to[there] += rows[here]; });
        }
    }
    void hand_over(int64_t part) const {
        hand_over(d_key_, D, part, p_.d_key_parts);
        hand_over(d_message_, D, part, p_.d_message_key_parts);
        if (gated_) hand_over(d_gate_key_, 1, part, p_.d_gate_key_parts);
    }
};
