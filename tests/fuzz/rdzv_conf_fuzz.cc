// Any text as --rdzv-conf: it is refused in one bounded sentence, or every time in it is positive.
#include "launcher/rdzv_conf.h"
#include "runtime/base/check.h"

#include <cstdint>
#include <string_view>

using namespace distrun::launcher;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto conf = parse_rdzv_conf({reinterpret_cast<const char*>(data), size});
  if (!conf) {
    DISTRUN_CHECK(!conf.error().detail.empty());
    DISTRUN_CHECK(conf.error().detail.size() < 2000);
    return 0;
  }
  for (const distrun::Duration time :
       {conf->timeout, conf->join_timeout, conf->last_call_timeout, conf->close_timeout,
        conf->heartbeat_timeout, conf->keep_alive_interval, conf->read_timeout}) {
    DISTRUN_CHECK(time > distrun::Duration::zero());
  }
  DISTRUN_CHECK(conf->keep_alive_max_attempt >= 1);
  DISTRUN_CHECK(conf->store_type == "tcp" || conf->store_type == "file");
  return 0;
}
