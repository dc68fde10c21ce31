#include "rendezvous/core/happening.h"

namespace distrun::rendezvous {

std::string_view to_string(HappeningKind kind) {
  switch (kind) {
    case HappeningKind::join:
      return "join";
    case HappeningKind::reattach:
      return "reattach";
    case HappeningKind::refuse:
      return "refuse";
    case HappeningKind::seal:
      return "seal";
    case HappeningKind::failure:
      return "failure";
    case HappeningKind::leave:
      return "leave";
    case HappeningKind::loss:
      return "loss";
    case HappeningKind::disband:
      return "disband";
    case HappeningKind::restart:
      return "restart";
    case HappeningKind::takeover:
      return "takeover";
    case HappeningKind::over:
      return "over";
  }
  return "?";
}

std::string_view to_string(RefusalCode code) {
  switch (code) {
    case RefusalCode::version:
      return "version";
    case RefusalCode::terms:
      return "terms";
    case RefusalCode::rank:
      return "rank";
    case RefusalCode::token:
      return "token";
    case RefusalCode::closed:
      return "closed";
    case RefusalCode::limit:
      return "limit";
    case RefusalCode::stale:
      return "stale";
    case RefusalCode::elsewhere:
      return "elsewhere";
    case RefusalCode::not_yet:
      return "not_yet";
  }
  return "?";
}

}  // namespace distrun::rendezvous
