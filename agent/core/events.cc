#include "agent/core/events.h"

namespace distrun::agent {

std::string_view to_string(Part part) {
  switch (part) {
    case Part::succeeded:
      return "succeeded";
    case Part::first_failure:
      return "first failure";
    case Part::victim:
      return "victim";
    case Part::stopped:
      return "stopped";
  }
  return "?";
}

}  // namespace distrun::agent
