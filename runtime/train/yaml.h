/* A YAML (or JSON) document as a tree of nodes that know their place, on libyaml's events.
 *
 * One document. A key given twice, an anchor or an alias is an error. One thread. */
#ifndef ZR_TRAIN_YAML_H
#define ZR_TRAIN_YAML_H

#include <stdbool.h>
#include <stddef.h>

#include "runtime/base/alloc.h"
#include "runtime/base/status.h"

typedef enum { ZR_YAML_SCALAR, ZR_YAML_MAP, ZR_YAML_LIST } zr_yaml_kind_t;

typedef struct {
  int kind;                               /* zr_yaml_kind_t */
  char *key;                              /* in its map; NULL in a list and at the root */
  char *text;                             /* of a scalar */
  bool quoted;                            /* the scalar was written in quotes */
  int line, column, key_line, key_column; /* from 1 */
  int parent, next, child;                /* indices; next sibling, first child; -1: none */
} zr_yaml_node_t;

typedef struct {
  zr_alloc_t *alloc;
  zr_yaml_node_t *node; /* node 0 is the root; an empty document's root is an empty map */
  size_t n_nodes, capacity;
} zr_yaml_t;

/* `name` is used in messages: "cfg.yaml:3:5: ...". ZR_ERR_CONFIG for what is not YAML. */
zr_status_t zr_yaml_parse(zr_alloc_t *alloc, const char *name, const char *text, size_t text_bytes,
                          zr_yaml_t **out_yaml) ZR_MUST_CHECK;
void zr_yaml_destroy(zr_yaml_t *yaml); /* NULL is fine */

#endif
