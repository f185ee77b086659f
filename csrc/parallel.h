// A loop over independent tasks on a few threads. Threads live for one call, so
// nothing outlives it and a process may fork at any other time.
#pragma once

#include <atomic>
#include <cstddef>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace laconic {

template <typename Task>
void parallel_for(size_t tasks, int threads, const Task& task) {
  if (threads <= 1 || tasks <= 1) {
    for (size_t i = 0; i < tasks; ++i) task(i);
    return;
  }
  std::atomic<size_t> next{0};
  std::exception_ptr error;
  std::mutex lock;
  const auto work = [&] {
    try {
      for (size_t i; (i = next.fetch_add(1)) < tasks;) task(i);
    } catch (...) {
      const std::lock_guard<std::mutex> guard(lock);
      if (!error) error = std::current_exception();
      next = tasks;
    }
  };
  std::vector<std::thread> helpers;
  const size_t wanted = std::min(size_t(threads), tasks) - 1;
  for (size_t i = 0; i < wanted; ++i) {
    try {
      helpers.emplace_back(work);
    } catch (const std::system_error&) {
      break;  // the machine has no thread to give: fewer do the same work
    }
  }
  work();
  for (auto& helper : helpers) helper.join();
  if (error) std::rethrow_exception(error);
}

}  // namespace laconic
