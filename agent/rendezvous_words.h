// What the rendezvous waits for, as people read it.
#pragma once

#include "rendezvous/core/messages.h"

#include <string>

namespace distrun::agent {

// "2 of 3 nodes (host-a, host-b); sealing at 3, or with 2 in 24 s"
std::string words(const rendezvous::Waiting& waiting);

// Whether the two say the same but for the time that has passed.
bool same_but_for_time(const rendezvous::Waiting& a, const rendezvous::Waiting& b);

}  // namespace distrun::agent
