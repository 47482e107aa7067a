// What a kernel tells its programmer.
#include <cstdarg>
#include <cstdio>

#include "machine.hpp"

namespace twin {

// CUDA C++ Programming Guide, "Formatted output": the format and the promotions of C's printf.
void printed(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vprintf(format, arguments);
  va_end(arguments);
  fflush(stdout);
}

}  // namespace twin

namespace pal {
using namespace twin;

// CUDA C++ Programming Guide, "Assertion": the kernel ends with an error.
void check_failed(const char* message, const char* file, int line) {
  const Site site = {file, line};
  PRIMITIVE("assert");
  fail("debug_check failed: %s", message);
}

}  // namespace pal
