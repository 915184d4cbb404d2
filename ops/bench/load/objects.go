package main

// Writes of objects of any kind, made of templates. The placeholders are @name@, @namespace@, @count@ (six digits that
// differ between writes) and @revision@ (the object's resourceVersion in the last response). Each connection writes its
// own objects: the verb create makes a new one each time, the other verbs change the same one.

import (
	"bytes"
	"flag"
	"fmt"
	"strings"
)

var objectsOptions struct {
	verb, collection, subresource, template, setup string
}

func init() {
	flag.StringVar(&objectsOptions.verb, "verb", "create", "objects: create, update, apply or patch")
	flag.StringVar(&objectsOptions.collection, "collection", "", "objects: path of the collection, may contain @namespace@")
	flag.StringVar(&objectsOptions.subresource, "subresource", "", "objects: the subresource to write")
	flag.StringVar(&objectsOptions.template, "template", "", "objects: the body of each write")
	flag.StringVar(&objectsOptions.setup, "setup", "", "objects: the object to create first (empty: the template)")
	modes["objects"] = runObjects
}

type objectVerb struct {
	method, content, query string
	want                   int
}

var objectVerbs = map[string]objectVerb{
	"create": {"POST", asJSON, "", 201},
	"update": {"PUT", asJSON, "", 200},
	"apply":  {"PATCH", "application/apply-patch+yaml", "?fieldManager=bench&force=true", 200},
	"patch":  {"PATCH", "application/strategic-merge-patch+json", "", 200},
}

func runObjects(o options) (map[string]any, error) {
	verb, known := objectVerbs[objectsOptions.verb]
	if !known || objectsOptions.collection == "" || objectsOptions.template == "" {
		return nil, fmt.Errorf("objects needs a -verb, a -collection and a -template")
	}
	collection := strings.ReplaceAll(objectsOptions.collection, "@namespace@", o.namespace)
	workers := make([]*worker, o.conns)
	for n := range workers {
		w := &worker{want: verb.want}
		name, revision := fmt.Sprintf("%s-%s-%d", objectsOptions.verb, runID, n), ""
		if objectsOptions.verb != "create" {
			var err error
			if revision, err = createObject(o, collection, name); err != nil {
				return nil, err
			}
		}
		w.next = func(i int) []byte {
			if objectsOptions.verb == "create" {
				body := filledIn(objectsOptions.template, fmt.Sprintf("%s-%d", name, i), o.namespace, i, "")
				return o.target.renderAs(verb.method, collection, verb.content, body)
			}
			if last := revisionIn(w.c.content); last != "" {
				revision = last
			}
			path := collection + "/" + name
			if objectsOptions.subresource != "" {
				path += "/" + objectsOptions.subresource
			}
			body := filledIn(objectsOptions.template, name, o.namespace, i, revision)
			return o.target.renderAs(verb.method, path+verb.query, verb.content, body)
		}
		workers[n] = w
	}
	return closedLoop(o, workers)
}

// createObject creates the object to change, and returns its resourceVersion.
func createObject(o options, collection, name string) (string, error) {
	template := objectsOptions.setup
	if template == "" {
		template = strings.Replace(objectsOptions.template, `,"resourceVersion":"@revision@"`, "", 1)
	}
	verb, path := objectVerbs["create"], collection
	if objectsOptions.verb == "apply" {
		verb = objectVerbs["apply"]
		path += "/" + name + verb.query
	}
	c, err := o.target.dial()
	if err != nil {
		return "", err
	}
	defer c.close()
	body := filledIn(template, name, o.namespace, 0, "")
	status, answer, err := c.exchange(o.target.renderAs(verb.method, path, verb.content, body))
	if err == nil && status != 201 {
		err = fmt.Errorf("creating %s: %d %.300s", name, status, answer)
	}
	return revisionIn(answer), err
}

func filledIn(template, name, namespace string, count int, revision string) []byte {
	return []byte(strings.NewReplacer(
		"@name@", name, "@namespace@", namespace, "@count@", fmt.Sprintf("%06d", count%1_000_000), "@revision@", revision,
	).Replace(template))
}

// revisionIn returns the resourceVersion in an object's JSON: the first occurrence of the key is that of the metadata.
func revisionIn(object []byte) string {
	_, after, found := bytes.Cut(object, []byte(`"resourceVersion":"`))
	if !found {
		return ""
	}
	revision, _, _ := bytes.Cut(after, []byte(`"`))
	return string(revision)
}
