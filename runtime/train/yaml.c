#include "runtime/train/yaml.h"

#include <string.h>
#include <yaml.h>

typedef struct {
  zr_yaml_t *yaml;
  const char *name;
  int open;  /* the innermost map or list; -1 before the root */
  char *key; /* read, its value not yet */
  int key_line, key_column;
} reader_t;

static zr_status_t find_twin(const reader_t *reader, int map) {
  const zr_yaml_t *yaml = reader->yaml;
  for (int i = yaml->node[map].child; i >= 0; i = yaml->node[i].next) {
    const zr_yaml_node_t *node = &yaml->node[i];
    if (node->key != NULL && strcmp(node->key, reader->key) == 0) {
      return zr_fail(
          ZR_ERR_CONFIG, "%s:%d:%d: key \"%s\" is given twice (first at line %d); keep one",
          reader->name, reader->key_line, reader->key_column, reader->key, node->key_line);
    }
  }
  return ZR_OK;
}

static zr_status_t add_node(reader_t *reader, int kind, const yaml_event_t *event, int *out_node) {
  zr_yaml_t *yaml = reader->yaml;
  ZR_TRY(zr_alloc_grow(yaml->alloc, &yaml->node, &yaml->capacity, yaml->n_nodes + 1,
                       sizeof *yaml->node));
  int index = (int)yaml->n_nodes++;
  zr_yaml_node_t *node = &yaml->node[index];
  *node = (zr_yaml_node_t){.kind = kind,
                           .key = reader->key,
                           .line = (int)event->start_mark.line + 1,
                           .column = (int)event->start_mark.column + 1,
                           .key_line = reader->key_line,
                           .key_column = reader->key_column,
                           .parent = reader->open,
                           .next = -1,
                           .child = -1};
  reader->key = NULL;
  if (kind == ZR_YAML_SCALAR) {
    ZR_TRY(zr_alloc_strdup(yaml->alloc, (const char *)event->data.scalar.value, &node->text));
    node->quoted = event->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
  }
  if (node->parent >= 0) {
    int *link = &yaml->node[node->parent].child;
    while (*link >= 0) link = &yaml->node[*link].next;
    *link = index;
  }
  *out_node = index;
  return ZR_OK;
}

static bool wants_key(const reader_t *reader) {
  return reader->open >= 0 && reader->yaml->node[reader->open].kind == ZR_YAML_MAP &&
         reader->key == NULL;
}

static zr_status_t fail_here(const reader_t *reader, const yaml_event_t *event, const char *what) {
  return zr_fail(ZR_ERR_CONFIG, "%s:%d:%d: %s", reader->name, (int)event->start_mark.line + 1,
                 (int)event->start_mark.column + 1, what);
}

static zr_status_t take_scalar(reader_t *reader, const yaml_event_t *event) {
  int ignored;
  if (event->data.scalar.anchor != NULL) {
    return fail_here(reader, event, "anchors are not supported; write the value out");
  }
  if (strlen((const char *)event->data.scalar.value) != event->data.scalar.length) {
    return fail_here(reader, event, "a value contains a zero byte");
  }
  if (!wants_key(reader)) return add_node(reader, ZR_YAML_SCALAR, event, &ignored);
  ZR_TRY(
      zr_alloc_strdup(reader->yaml->alloc, (const char *)event->data.scalar.value, &reader->key));
  reader->key_line = (int)event->start_mark.line + 1;
  reader->key_column = (int)event->start_mark.column + 1;
  return find_twin(reader, reader->open);
}

static zr_status_t take_event(reader_t *reader, const yaml_event_t *event) {
  bool is_map = event->type == YAML_MAPPING_START_EVENT;
  switch (event->type) {
    case YAML_SCALAR_EVENT:
      return take_scalar(reader, event);
    case YAML_MAPPING_START_EVENT:
    case YAML_SEQUENCE_START_EVENT:
      if (wants_key(reader)) return fail_here(reader, event, "a key must be plain text");
      if ((is_map ? event->data.mapping_start.anchor : event->data.sequence_start.anchor) != NULL) {
        return fail_here(reader, event, "anchors are not supported; write the value out");
      }
      return add_node(reader, is_map ? ZR_YAML_MAP : ZR_YAML_LIST, event, &reader->open);
    case YAML_MAPPING_END_EVENT:
    case YAML_SEQUENCE_END_EVENT:
      reader->open = reader->yaml->node[reader->open].parent;
      return ZR_OK;
    case YAML_ALIAS_EVENT:
      return fail_here(reader, event, "aliases (*name) are not supported; write the value out");
    case YAML_DOCUMENT_START_EVENT:
      if (reader->yaml->n_nodes > 0) {
        return fail_here(reader, event, "a second document begins here; a file holds one");
      }
      return ZR_OK;
    default:
      return ZR_OK;
  }
}

static zr_status_t read_all(reader_t *reader, yaml_parser_t *parser) {
  for (bool done = false; !done;) {
    yaml_event_t event;
    if (!yaml_parser_parse(parser, &event)) {
      const yaml_mark_t *mark = &parser->problem_mark;
      return zr_fail(ZR_ERR_CONFIG, "%s:%d:%d: not YAML: %s%s%s", reader->name, (int)mark->line + 1,
                     (int)mark->column + 1, parser->problem ? parser->problem : "unreadable",
                     parser->context ? " " : "", parser->context ? parser->context : "");
    }
    done = event.type == YAML_STREAM_END_EVENT;
    zr_status_t status = take_event(reader, &event);
    yaml_event_delete(&event);
    ZR_TRY(status);
  }
  if (reader->yaml->n_nodes == 0) {
    int ignored;
    yaml_event_t nothing = {0};
    ZR_TRY(add_node(reader, ZR_YAML_MAP, &nothing, &ignored));
  }
  return ZR_OK;
}

zr_status_t zr_yaml_parse(zr_alloc_t *alloc, const char *name, const char *text, size_t text_bytes,
                          zr_yaml_t **out_yaml) {
  zr_yaml_t *yaml = NULL;
  ZR_TRY(zr_alloc_get(alloc, 1, sizeof *yaml, &yaml));
  yaml->alloc = alloc;
  yaml_parser_t parser;
  if (!yaml_parser_initialize(&parser)) {
    zr_alloc_free(alloc, yaml);
    return zr_fail(ZR_ERR_OUT_OF_MEMORY, "%s: no memory for the YAML parser", name);
  }
  yaml_parser_set_input_string(&parser, (const unsigned char *)text, text_bytes);
  reader_t reader = {.yaml = yaml, .name = name, .open = -1};
  zr_status_t status = read_all(&reader, &parser);
  yaml_parser_delete(&parser);
  if (status == ZR_OK) {
    *out_yaml = yaml;
  } else {
    zr_alloc_free(alloc, reader.key);
    zr_yaml_destroy(yaml);
  }
  return status;
}

void zr_yaml_destroy(zr_yaml_t *yaml) {
  if (yaml == NULL) return;
  for (size_t i = 0; i < yaml->n_nodes; ++i) {
    zr_alloc_free(yaml->alloc, yaml->node[i].key);
    zr_alloc_free(yaml->alloc, yaml->node[i].text);
  }
  zr_alloc_free(yaml->alloc, yaml->node);
  zr_alloc_free(yaml->alloc, yaml);
}
