package main

// Writes of objects of any kind, made of templates. The placeholders are @name@, @namespace@, @count@ (six digits that
// differ between writes) and @revision@ (the object's resourceVersion in the last response). Each connection writes its
// own objects: the verb create makes a new one each time, the other verbs change the same one. The modes get, create,
// update, fill, list and watch also use -collection and -template, and ConfigMaps without them.

import (
	"bytes"
	"flag"
	"fmt"
	"strings"
	"time"
)

var objectsOptions struct {
	verb, collection, subresource, template, setup, definition string
}

func init() {
	flag.StringVar(&objectsOptions.verb, "verb", "create", "objects: create, update, apply or patch")
	flag.StringVar(&objectsOptions.collection, "collection", "", "path of the collection, may contain @namespace@ (default: ConfigMaps)")
	flag.StringVar(&objectsOptions.subresource, "subresource", "", "objects: the subresource to write")
	flag.StringVar(&objectsOptions.template, "template", "", "the body of each write (default: a ConfigMap)")
	flag.StringVar(&objectsOptions.definition, "definition", "", "a CustomResourceDefinition to create first, unless it exists")
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
	collection := o.collection()
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

// collection returns the path of the objects.
func (o options) collection() string {
	if objectsOptions.collection == "" {
		return configMapPath(o.namespace)
	}
	return strings.ReplaceAll(objectsOptions.collection, "@namespace@", o.namespace)
}

// object appends an object. count and value differ between writes; a ConfigMap has the value, a template the count.
func (o options) object(to []byte, name string, count int, value string) []byte {
	if objectsOptions.template == "" {
		return appendConfigMap(to, o.namespace, name, value)
	}
	return append(to, filledIn(objectsOptions.template, name, o.namespace, count, "")...)
}

// ensureDefinition creates the definition of -definition, and waits until its resource is served.
func ensureDefinition(o options) error {
	if objectsOptions.definition == "" {
		return nil
	}
	c, err := o.target.dial()
	if err != nil {
		return err
	}
	defer c.close()
	const path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	status, answer, err := c.exchange(o.target.render(nil, "POST", path, "", []byte(objectsOptions.definition)))
	if err == nil && status != 201 && status != 409 {
		err = fmt.Errorf("creating the definition: %d %.300s", status, answer)
	}
	for until := time.Now().Add(exchangeTimeout); err == nil && time.Now().Before(until); time.Sleep(20 * time.Millisecond) {
		status, answer, err = c.exchange(o.target.render(nil, "GET", o.collection()+"?limit=1", "", nil))
		if err == nil && status == 200 {
			return nil
		}
	}
	if err == nil {
		err = fmt.Errorf("the resource is not served: %d %.300s", status, answer)
	}
	return err
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
