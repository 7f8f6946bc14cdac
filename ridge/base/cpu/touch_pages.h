// Memory whose pages are all there before somebody waits for them one by one.
#pragma once

#include <cstddef>

namespace ridge {

/// Has the system make the whole pages of that memory now, huge ones where it has those, by all
/// threads. What lies there stays.
void touch_pages(void* memory, size_t bytes);

}  // namespace ridge
