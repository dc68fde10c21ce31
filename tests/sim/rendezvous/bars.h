// Bars: what the rendezvous costs with many agents, and what a long time in bad weather does to it.
// Each prints a line and says whether its bar holds.
#pragma once

namespace distrun::rendezvous::sim {

// `agents` form a round, a tenth of them dies, the others form another: CPU, messages per agent and
// phase, and the cost of an agent beside that with 100.
bool bar_scale(int agents);
// One simulated hour with a fault every 10 s.
bool bar_hour(int agents);
// So many simulated hours, 4 to 8 nodes, 5 % loss and 200 ms of jitter: nobody is lost.
bool bar_calm(int hours);

}  // namespace distrun::rendezvous::sim
