// The one translation unit that compiles Asio and Process; everything else only declares them.
// throw_error.hpp first: Process 1.81 needs it under separate compilation (its issue 318).
#include <boost/asio/detail/throw_error.hpp>
// clang-format off
#include <boost/asio/impl/src.hpp>
#include <boost/process/v2/src.hpp>
// clang-format on
