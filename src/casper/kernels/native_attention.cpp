// The causal attention of casper/attention.py on a processor, forward and backward, for float and double.
//
// Work is cut into sensors that look (i) of windows (b), see native_sensor.hpp. Gradients of keys are added up in a few
// copies ("parts") of the whole, each by one worker at a time and in a fixed order: results do not depend on the number
// of threads.

#include "native_sensor.hpp"

namespace {

template <class Real, class Work> void in_parallel(const Problem &p, int64_t items, Work work) {
    int64_t most_keys = 1;
    for (int64_t i = 0; i < p.sensors; ++i)
        most_keys = std::max(most_keys, (p.start[i + 1] - p.start[i]) * p.steps);
#pragma omp parallel num_threads(int(std::clamp<int64_t>(items, 1, p.threads)))
    {
        Arena<Real> arena(Sensor<Real>::room(p, most_keys));
        Sensor<Real> sensor(p, arena, most_keys);
#pragma omp for schedule(dynamic)
        for (int64_t item = 0; item < items; ++item) work(sensor, item);
    }
}

template <class Real> void forward(const Problem &p) {
    in_parallel<Real>(p, p.batch * p.sensors, [&](Sensor<Real> &sensor, int64_t item) {
        sensor.forward(item % p.batch, p.order[item / p.batch]);  // long work first
    });
}

template <class Real> void backward(const Problem &p) {
    in_parallel<Real>(p, p.batch * p.parts, [&](Sensor<Real> &sensor, int64_t item) {
        const int64_t b = item % p.batch, part = item / p.batch, cells = p.sensors * p.steps;
        const auto clear = [&](void *parts, int64_t size) {
            Real *own = static_cast<Real *>(parts) + (part * p.batch + b) * size;
            if (parts) std::fill(own, own + size, Real(0));
        };
        clear(p.d_key_parts, cells * p.heads * p.channels);
        clear(p.d_message_key_parts, cells * p.heads * p.channels);
        clear(p.d_gate_key_parts, cells);
        clear(p.d_relative_bias_parts, p.heads * p.steps * p.steps);
        for (int64_t place = part; place < p.sensors; place += p.parts)  // long and short work in every part
            sensor.backward(b, p.order[place], part);
    });
}

}  // namespace

extern "C" void casper_forward(const Problem *p, int32_t is_double) {
    is_double ? forward<double>(*p) : forward<float>(*p);
}

extern "C" void casper_backward(const Problem *p, int32_t is_double) {
    is_double ? backward<double>(*p) : backward<float>(*p);
}
