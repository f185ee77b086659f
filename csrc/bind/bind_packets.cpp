// In-network aggregation as Python sees it: one blocking call per operation, which signals can interrupt.
#include <nanobind/stl/array.h>

#include "aggregator.h"
#include "bind.h"
#include "packets.h"

using namespace nanobind::literals;

namespace laconic {
namespace {

constexpr double kSliceS = 0.1;  // how long Ctrl-C may have to wait

template <typename T>
Outcome reduce(Worker& worker, int operation, const Row<T>& values) {
  check(values.shape(0) <= uint64_t(PACKET_VALUES) << 31, "more than 2^31 blocks in one call");
  worker.begin(operation, reinterpret_cast<int32_t*>(values.data()), values.shape(0));
  while (true) {
    Outcome outcome;
    {
      const nb::gil_scoped_release release;
      outcome = worker.proceed(kSliceS);
    }
    if (outcome != Outcome::kRunning) return outcome;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  }
}

int serve(Aggregator& aggregator, int socket, double seconds) {
  const nb::gil_scoped_release release;
  return aggregator.serve(socket, seconds);
}

}  // namespace

void define_packets(nb::module_& m) {
  m.attr("PACKET_VALUES") = PACKET_VALUES;
  m.attr("PACKET_WORKERS") = PACKET_WORKERS;
  m.attr("PACKET_WINDOW") = PACKET_WINDOW;
  m.attr("PACKET_POOL") = PACKET_POOL;
  m.attr("PACKET_PORT") = PACKET_PORT;
  nb::enum_<Outcome>(m, "Outcome")
      .value("DONE", Outcome::kDone)
      .value("OVERFLOW", Outcome::kOverflow)
      .value("OUT_OF_STEP", Outcome::kOutOfStep)
      .value("TIMEOUT", Outcome::kTimeout)
      .value("SYSTEM_ERROR", Outcome::kSystemError);
  nb::class_<Worker>(m, "Worker")
      .def(nb::init<int, uint64_t, uint32_t, uint32_t, double>(), "socket"_a, "job"_a, "worker"_a, "workers"_a,
           "timeout_s"_a)
      .def("add", [](Worker& w, const Row<int32_t>& x) { return reduce(w, PACKET_SUM, x); }, "values"_a.noconvert())
      .def("unite", [](Worker& w, const Row<uint32_t>& x) { return reduce(w, PACKET_OR, x); }, "words"_a.noconvert())
      .def_prop_ro("round", &Worker::round)
      .def_prop_ro("seen", &Worker::seen)
      .def_prop_ro("answered", &Worker::answered)
      .def_prop_ro("error", &Worker::error)
      .def_prop_ro("bytes_sent", &Worker::bytes_sent)
      .def_prop_ro("bytes_received", &Worker::bytes_received)
      .def_prop_ro("repeated", &Worker::repeated);
  nb::class_<Aggregator>(m, "Aggregator")
      .def(nb::init<size_t>(), "most_jobs"_a)
      .def("add_job", &Aggregator::add_job, "token"_a, "workers"_a)
      .def("remove_job", &Aggregator::remove_job, "token"_a)
      .def("serve", &serve, "socket"_a, "seconds"_a)
      .def("counters", &Aggregator::counters);
}

}  // namespace laconic
