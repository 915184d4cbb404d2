package main

// The steps of a Site: finalizer, ConfigMap, status; and when it is deleted: the finalizer is removed.

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

const finalizer = group + "/pages"

type siteReconciler struct {
	client.Client
	events   events.EventRecorder
	scheme   *runtime.Scheme
	operator string
	pauseAt  string
}

func (r *siteReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	site := &Site{}
	if err := r.Get(ctx, request.NamespacedName, site); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	err := r.reconcile(ctx, site)
	if apierrors.IsConflict(err) {
		return ctrl.Result{Requeue: true}, nil // the cache was older than the server
	}
	report := map[string]any{"event": "reconciled", "operator": r.operator, "site": site.Name, "generation": site.Generation}
	if err != nil {
		report["event"], report["error"] = "failed", err.Error()
	}
	emit(report)
	return ctrl.Result{}, err
}

func (r *siteReconciler) reconcile(ctx context.Context, site *Site) error {
	if site.DeletionTimestamp != nil {
		r.pause(site, "finalizer")
		if controllerutil.RemoveFinalizer(site, finalizer) {
			return client.IgnoreNotFound(r.Update(ctx, site))
		}
		return nil
	}
	if controllerutil.AddFinalizer(site, finalizer) {
		if err := r.Update(ctx, site); err != nil {
			return err
		}
	}
	r.pause(site, "configmap")
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: site.Name, Namespace: site.Namespace}}
	done, err := controllerutil.CreateOrUpdate(ctx, r.Client, config, func() error {
		config.Data = map[string]string{"host": site.Spec.Host, "pages": fmt.Sprint(site.Spec.Pages)}
		return controllerutil.SetControllerReference(site, config, r.scheme)
	})
	if err != nil {
		return err
	}
	if done != controllerutil.OperationResultNone {
		r.events.Eventf(site, config, corev1.EventTypeNormal, "Written", "Write", "wrote %s", config.Name)
	}
	r.pause(site, "status")
	before := site.DeepCopy()
	site.Status.ObservedGeneration, site.Status.ConfigMap = site.Generation, config.Name
	changed := meta.SetStatusCondition(&site.Status.Conditions, metav1.Condition{
		Type: "Ready", Status: metav1.ConditionTrue, Reason: "Written", ObservedGeneration: site.Generation,
		Message: fmt.Sprintf("%s has %d pages", site.Spec.Host, site.Spec.Pages),
	})
	if !changed && before.Status.ObservedGeneration == site.Generation {
		return nil
	}
	return r.Status().Update(ctx, site)
}

// pause blocks for ever before a step of an annotated Site.
func (r *siteReconciler) pause(site *Site, step string) {
	if r.pauseAt != step || site.Annotations["pause"] == "" {
		return
	}
	emit(map[string]any{"event": "paused", "operator": r.operator, "site": site.Name, "step": step})
	select {}
}
