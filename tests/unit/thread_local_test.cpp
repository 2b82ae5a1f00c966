// Note [Thread-local memory]: what the library keeps for each thread fits where it must.
#include <gtest/gtest.h>
#include <link.h>

#include <cstring>

namespace arete {
namespace {

TEST(ThreadLocalMemory, IsSmallEnoughToBeLaidOutWhenALibraryIsLoadedLate) {
  size_t bytes = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* result) {
        if (!std::strstr(info->dlpi_name, "libarete.so")) return 0;
        for (int i = 0; i < info->dlpi_phnum; ++i)
          if (info->dlpi_phdr[i].p_type == PT_TLS)
            *static_cast<size_t*>(result) = info->dlpi_phdr[i].p_memsz;
        return 1;
      },
      &bytes);
  if (bytes == 0) GTEST_SKIP() << "linked statically";
  EXPECT_LE(bytes, 512u);
}

}  // namespace
}  // namespace arete
