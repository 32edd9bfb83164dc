#ifndef ZR_LAUNCH_VERSION_H
#define ZR_LAUNCH_VERSION_H

#define ZR_VERSION "0.1.0"

#endif
