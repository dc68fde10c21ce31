// What is true of any state of a Rendezvous, and of any step from one state to the next.  Each is
// one sentence with one function; the simulation checks all of them after every event, and
// scripts/mutate shows that they catch a core that breaks them.
#pragma once

#include "rendezvous/core/rendezvous.h"

#include <string>
#include <string_view>
#include <vector>

namespace distrun::rendezvous {

// An empty string, or the invariant that is broken.
std::string broken_invariant(const RendezvousState& state);
// The same for the step that handle() made and the effects that it returned.
std::string broken_step(const RendezvousState& before, const RendezvousState& after,
                        const Effects& effects);

// Every sentence that the functions above can return.
std::vector<std::string_view> invariant_sentences();

}  // namespace distrun::rendezvous
