// Memory for random access: in huge pages where the system has them, because a large array in small ones costs a
// fault per page when it is new and a miss of the address cache at almost every look.
#pragma once

#ifdef __linux__
#include <sys/mman.h>
#endif

#include <cstddef>
#include <cstdlib>
#include <new>
#include <type_traits>

namespace laconic {

template <typename T>
class HugeArray {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  explicit HugeArray(size_t count) {  // contents unspecified
    const size_t bytes = count * sizeof(T) + !count;
    const bool large = bytes >= kPage;
    data_ = static_cast<T*>(large ? std::aligned_alloc(kPage, (bytes + kPage - 1) / kPage * kPage) : std::malloc(bytes));
    if (!data_) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE
    if (large) madvise(data_, (bytes + kPage - 1) / kPage * kPage, MADV_HUGEPAGE);  // a wish: refusal costs only time
#endif
  }
  ~HugeArray() { std::free(data_); }
  HugeArray(const HugeArray&) = delete;
  HugeArray& operator=(const HugeArray&) = delete;

  T& operator[](size_t i) { return data_[i]; }
  const T& operator[](size_t i) const { return data_[i]; }
  T* data() { return data_; }
  const T* data() const { return data_; }

 private:
  static constexpr size_t kPage = size_t(2) << 20;
  T* data_;
};

}  // namespace laconic
